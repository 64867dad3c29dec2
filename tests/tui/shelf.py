"""The profiles of a scripted service: texts with revisions, a check of three rules, a plan. Not here: any test.

It answers GET, PUT and DELETE /admin/profiles, POST /admin/profiles/validate and /admin/plan as the contract says, with
etags that hold (412) and numbers that a test can work out by hand.
"""

import difflib
import hashlib
import re
from typing import Any

from tests.tui.fake import GIB, Asked, Fake

Answer = tuple[int, Any]
TRAINED = 40960
KV_PER_TOKEN = 51 << 10
TEXTS = {
    "quick-verify": "name: quick-verify\nsummary: short answers\nctx_size: 8192\nthreads: 16\nparallel: 4\n",
    "long-doc": "# one long document at a time\nname: long-doc\nsummary: long documents\nctx_size: 32768\nthreads: 32\n"
                "cache_type_k: q8_0\ncache_type_v: q8_0\ndrain:\n  drain_timeout: 60\nfallback: quick-verify\n",
    "batch-tag": "name: batch-tag\nsummary: rows by the thousand\nctx_size: 2048\nthreads: 32\nparallel: 16\n",
    "fallback": "name: fallback\nsummary: what always starts\nctx_size: 2048\nthreads: 8\n",
    "huge-test": "name: huge-test\nmodel: qwen3-235b.gguf\nctx_size: 8192\nthreads: 32\n",
    "draft-x": "name: draft-x\nctx_size: 99999\nfallback: quick-verfy\n",
}  # fmt: skip
STAGES = (
    ("drain", 24.0, 60, "3 running; waiting ones are held, not lost"), ("stop", 1.0, 15, ""), ("start", 2.0, 30, ""),
    ("warm", 7.0, 180, "61% already in page cache"), ("check", 1.0, 20, ""))  # fmt: skip
WEIGHTS = {"huge-test": 120 * GIB}


def etag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def values(text: str) -> dict[str, str]:
    """The keys of a profile, groups flattened; enough YAML for these texts."""
    found = re.findall(r"^ *([a-z_]+): *(.*?) *$", text, re.M)
    return {key: value for key, value in found if value}


class Shelf:
    """`texts`, `revs` and `drafts` are what is stored; `active` serves."""

    def __init__(self, fake: Fake, active: str = "quick-verify") -> None:
        self.fake = fake
        self.active = active
        self.texts = dict(TEXTS)
        self.revs = dict.fromkeys(TEXTS, 0) | {"quick-verify": 14, "long-doc": 6}
        self.drafts: dict[str, str] = {}
        self.conflicts = 0  # so many saves meet somebody else's first
        self.n_plans = 0
        fake.answers["GET", "/admin/profiles"] = lambda _: (200, self.listed())
        fake.answers["POST", "/admin/profiles/validate"] = self._validate
        fake.answers["POST", "/admin/plan"] = self._plan
        for name in self.texts:
            self.offer(name)

    def offer(self, name: str) -> None:
        """Answer at the address of that name, whether or not there is such a profile yet."""
        path = f"/admin/profiles/{name}"
        self.fake.answers["GET", path] = lambda _: self.document(name)
        self.fake.answers["PUT", path] = lambda asked: self._put(name, asked)
        self.fake.answers["DELETE", path] = lambda asked: self._delete(name, asked)

    def problems(self, name: str, text: str) -> list[dict[str, Any]]:
        """A context over the trained one, an unknown fallback, a line that is no key."""
        found = []
        for no, line in enumerate(text.splitlines(), 1):
            key, colon, value = line.partition(":")
            col = len(line) - len(line.lstrip()) + 1
            value, at = value.strip(), len(key) + 3
            if line.strip() and not line.lstrip().startswith("#") and not colon:
                found.append((no, col, "error", "", f"'{line.strip()}' is no key; write it as key: value", ""))
            elif key == "ctx_size" and value.isdigit() and int(value) > TRAINED:
                words = f"ctx_size: {value} is above the model's trained context {TRAINED}"
                found.append((no, at, "error", "ctx_size", words, f"lower it to at most {TRAINED}"))
            elif key == "fallback" and value not in self.texts:
                near = difflib.get_close_matches(value, self.texts, 1)
                hint = near[0] if near else ""
                found.append((no, at, "error", "fallback", f"fallback: no profile named '{value}'", hint))
            elif key == "threads" and value.isdigit() and int(value) > 64:
                found.append((no, at, "warning", "threads", f"threads: {value} is more than there are cores", ""))
        return [dict(zip(("line", "col", "severity", "path", "message", "hint"), row, strict=True)) for row in found]

    def listed(self) -> dict[str, Any]:
        rows = []
        for name, text in self.texts.items():
            plan = self.plan(name, text)
            errors = [p for p in self.problems(name, text) if p["severity"] == "error"]
            state = "errors" if errors else "active" if name == self.active else "valid"
            keys = ("fit", "weights_bytes", "kv_bytes", "engine_bytes", "total_bytes", "budget_bytes", "spare_bytes")
            rows.append({
                "name": name, "rev": self.revs[name], "etag": etag(text), "state": state, "n_errors": len(errors),
                "source": "edited" if self.revs[name] else "packaged", "n_warnings": 0,
                "summary": values(text).get("summary", ""), "model": values(text).get("model"),
                "ctx_size": plan["n_ctx"], "parallel": plan["parallel"], "threads": plan["threads"],
                "type_k": "q8_0", "type_v": "q8_0", "fit_reason": plan["reason"], "cached": plan["cached"],
                "last_used": 1_789_990_000.0 if name == "long-doc" else None, "last_by": "ops", "last_tok_s": 6.2,
                "is_fallback": name == "fallback", "has_draft": name in self.drafts,
                **{key: {**plan, "fit": "?" if errors else plan["verdict"]}[key] for key in keys},
            })  # fmt: skip
        return {"active": self.active, "folder": "/data/profiles", "fallback": "fallback", "profiles": rows}

    def document(self, name: str) -> Answer:
        if name not in self.texts:
            return 404, {"error": {"message": f"there is no profile '{name}'", "code": "profile_not_found"}}
        text, draft = self.texts[name], self.drafts.get(name)
        return 200, {
            "name": name, "rev": self.revs[name], "etag": etag(text), "text": text,
            "source": "edited" if self.revs[name] else "packaged", "problems": self.problems(name, text),
            "draft": None if draft is None else
            {"text": draft, "etag": etag(draft), "problems": self.problems(name, draft)},
            "history": [
                {"rev": self.revs[name], "saved": 1_789_990_000.0, "by": "ops", "note": "", "etag": etag(text)}],
        }  # fmt: skip

    def _put(self, name: str, asked: Asked) -> Answer:
        text, is_draft = asked.body["text"], asked.body.get("draft", False)
        match = asked.headers.get("If-Match", "").strip('"')
        if self.conflicts:
            self.conflicts -= 1
            self.texts[name] = self.texts.get(name, f"name: {name}\n") + "# saved by somebody else\n"
            self.revs[name] = self.revs.get(name, 0) + 1
        now = etag(self.texts[name]) if name in self.texts else ""
        if now and not match and asked.headers.get("If-None-Match") != "*":
            return 428, {"error": {"message": "say which text you changed", "code": "precondition_required"}}
        if match != now and not (match and name in self.drafts and match == etag(self.drafts[name])):
            return 412, {"error": {"message": f"{name} was changed meanwhile", "code": "profile_changed", "etag": now}}
        problems = self.problems(name, text)
        if is_draft:
            self.drafts[name] = text
            self.texts.setdefault(name, text)
            self.revs.setdefault(name, 0)
            return self.document(name)
        if any(problem["severity"] == "error" for problem in problems):
            error = {"message": f"{name} has errors", "code": "profile_invalid", "problems": problems}
            return 400, {"error": error}
        self.texts[name] = text
        self.revs[name] = self.revs.get(name, 0) + 1
        self.drafts.pop(name, None)
        return self.document(name)

    def _delete(self, name: str, asked: Asked) -> Answer:
        if asked.headers.get("If-Match", "").strip('"') != etag(self.texts[name]):
            return 412, {"error": {"message": "changed meanwhile", "code": "profile_changed"}}
        del self.texts[name]
        return 204, None

    def _validate(self, asked: Asked) -> Answer:
        fields = {
            "ctx_size": {"help": "positions of the context", "kind": "engine", "default": 0, "value": None,
                         "why": "0 lets the planner choose"},
            "fallback": {"help": "profile that serves when a start fails", "kind": "serving", "default": "fallback",
                         "value": None, "why": "the smallest"},
        }  # fmt: skip
        return 200, {"problems": self.problems(asked.body["name"], asked.body["text"]), "fields": fields}

    def _plan(self, asked: Asked) -> Answer:
        self.n_plans += 1
        name = asked.body["name"]
        if name not in self.texts and "text" not in asked.body:
            return 404, {"error": {"message": f"there is no profile '{name}'", "code": "profile_not_found"}}
        return 200, self.plan(name, asked.body.get("text", self.texts.get(name, "")))

    def plan(self, name: str, text: str) -> dict[str, Any]:
        """All numbers follow from ctx_size, parallel and the name."""
        found = values(text)
        n_ctx, slots = (int(found.get(key, default)) for key, default in (("ctx_size", "4096"), ("parallel", "1")))
        weights, kv, engine = WEIGHTS.get(name, 17 * GIB), n_ctx * slots * KV_PER_TOKEN, GIB
        total, budget = weights + kv + engine, 48 * GIB
        fits = total <= budget
        errors = [] if fits else [f"{name} needs {total / GIB:.1f} GiB and may take 48.0 GiB"]
        old = values(self.texts[self.active])
        keys = sorted(key for key in {*old, *found} - {"name", "summary"} if old.get(key) != found.get(key))
        return {
            "name": name, "rev": self.revs.get(name, 0), "verdict": "OK" if fits else "NO", "fits": fits,
            "reason": "fits in memory" if fits else errors[0], "weights_bytes": weights, "kv_bytes": kv,
            "kv_bytes_per_token": KV_PER_TOKEN, "engine_bytes": engine, "total_bytes": total, "budget_bytes": budget,
            "weights": {"embedding": GIB, "attention": GIB, "ffn": weights - 2 * GIB},
            "budget_reason": "min(container limit 48.0 GiB, available 59.4 - reserve 6.25)",
            "spare_bytes": budget - total, "cached": 0.61, "n_ctx": n_ctx, "n_ctx_train": TRAINED, "n_layers": 48,
            "n_kv_heads": 4, "head_dim": 128, "type_k": "q8_0", "type_v": "q8_0", "parallel": slots,
            "threads": int(found.get("threads", "0")), "load_mode": "resident", "size": weights,
            "model": found.get("model", "qwen3-30b-a3b-q4_k_m.gguf"),
            "stages": [{"name": n, "estimate_s": s, "limit_s": m, "note": t} for n, s, m, t in STAGES],
            "gap_s": 11.0, "restart": True,
            "changes": [
                {"key": key, "from": old.get(key), "to": found.get(key), "kind": "engine", "effect": f"new {key}"}
                for key in keys
            ],
            "requests": {"running": 3, "waiting": 3, "held_limit": 64},
            "rollback": {"name": self.active, "rev": self.revs[self.active], "text": "all in page cache, about 4 s"},
            "side_effects": ["API clients get 429 with Retry-After: 20 once 64 requests are held"],
            "warnings": [], "errors": errors,
            "checks": [
                {"text": "model file present and readable", "result": "ok", "detail": "/models/qwen3-30b-a3b.gguf"},
                {"text": f"ctx {n_ctx} within trained context {TRAINED}", "result": "ok", "detail": ""},
                {"text": "memory within the budget", "result": "ok" if fits else "fail", "detail": "min(limit, free)"},
                {"text": "threads within physical cores", "result": "warn", "detail": "32 of 32, none left for others"},
            ],
            "rows": [{"name": "n_ctx", "value": n_ctx, "reason": "given", "provenance": f"profile {name}"}],
        }  # fmt: skip
