"""A swap by script: it takes one step at each look at the state, on a clock of its own. Not here: any test.

`Swaps(fails="warm", how="timeout", rescue="ok")` plays the state machine of the service: the stages in order, the
failure at the stage named, then the rollback and the fallback. Documents have the shape of GET /admin/swap/{id}.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

from tests.tui.fake import Asked, Fake

STAGES = ("plan", "drain", "stop", "start", "warm", "check")
TOOK = {"plan": 0.1, "drain": 18.2, "stop": 0.6, "start": 1.9, "warm": 6.9, "check": 0.7}
LIMITS = {"plan": 10, "drain": 60, "stop": 15, "start": 30, "warm": 180, "check": 20}
DETAILS = {"drain": "3 finished, 0 cancelled", "stop": "exit 0", "start": "health 200, model mapped"}
REASONS = {
    "fault": ("{stage}_failed", "the engine left with exit code 3 in {stage}: bad tensor", "look at the model file"),
    "timeout": ("{stage}_timeout", "{stage} took longer than its limit of {limit} s", "7 Logs, source engine"),
}
STARTED = 1_790_000_000.0


@dataclass
class Swaps:
    """`fails` at a stage in the way `how` (fault or timeout); `rescue` ok, fallback or crashed tells what comes then.

    `posts` are the swaps asked for, each with its body and headers; one after another, never two at once.
    """

    fails: str = ""
    how: str = "fault"
    rescue: str = "ok"
    serving: str = "quick-verify"
    serving_rev: int = 0
    state: str = "ready"
    now: float = STARTED
    hold_at: str = ""  # a stage that does not end until this is emptied
    posts: list[dict[str, Any]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    current: dict[str, Any] | None = None

    def begin(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """POST /admin/swap: 202, or 200 with the same swap for a key seen before, or 409 with the running one."""
        key = headers.get("Idempotency-Key", "")
        self.posts.append({"body": body, "key": key, "by": headers.get("X-Colibri-User", "")})
        for swap in [self.current, *self.done]:
            if swap is not None and key and swap["key"] == key:
                return 202, self._shown(swap)
        if self.current is not None:
            facts = {"code": "profile_switch_in_progress", "swap_id": self.current["id"]}
            return 409, {"error": {"message": f"swap {self.current['id']} is running", "type": "conflict", **facts}}
        is_same = body["to"] == self.serving and body.get("rev") in (None, self.serving_rev)
        self.current = {
            "id": f"{len(self.done) + 42:04}", "key": key, "from": self.serving, "from_rev": self.serving_rev,
            "to": body["to"], "to_rev": body.get("rev") or 0, "note": body.get("note", ""),
            "by": headers.get("X-Colibri-User", ""), "state": "running", "stage": "plan", "n": 0, "of": 5,
            "is_aborting": False, "started": self.now, "ended": None, "elapsed_s": 0.0, "gap_s": 0.0,
            "stages": [{"name": name, "state": "waiting", "started": None, "took_s": None, "limit_s": LIMITS[name],
                        "detail": "", "progress": None} for name in STAGES],
            "rescue": [], "reason": None, "held": {"n": 3, "oldest_ms": 2000, "kept": 3, "lost": 0, "refused": 0},
            "text": "", "log": [{"time": self.now, "text": "accepted"}], "engine_lines": ["load: 30 layers", "ready"],
        }  # fmt: skip
        if is_same:
            return 200, self._end("unchanged")
        return 202, self._shown(self.current)

    def abort(self, id: str) -> tuple[int, dict[str, Any]]:
        """POST /admin/swap/{id}/abort."""
        self.aborts.append(id)
        if self.current is None or self.current["id"] != id:
            return 409, {"error": {"message": f"swap {id} has ended", "type": "conflict", "code": "swap_ended"}}
        self.current["is_aborting"] = True
        self.current["reason"] = {"code": "aborted", "stage": self.current["stage"], "message": "aborted by ops",
                                  "advice": ""}  # fmt: skip
        return 202, self._shown(self.current)

    def find(self, id: str) -> dict[str, Any] | None:
        """GET /admin/swap/{id}."""
        every = [*self.done, *([self.current] if self.current else [])]
        return next((self._shown(swap) for swap in every if swap["id"] == id), None)

    def brief(self) -> dict[str, Any] | None:
        """What the state document says of the running one."""
        if self.current is None:
            return None
        return {key: value for key, value in self._shown(self.current).items() if key not in ("log", "engine_lines")}

    def last(self) -> dict[str, Any] | None:
        """What the state document says of the last one that ended."""
        if not self.done:
            return None
        swap = self.done[-1]
        facts = {key: swap[key] for key in ("id", "from", "to", "state", "ended", "text")}
        return {**facts, "took_s": swap["ended"] - swap["started"]}

    def step(self) -> None:
        """One look at the state: a second goes by, or a stage begins, moves or ends."""
        self.now += 1.0
        swap = self.current
        if swap is None:
            return
        swap["elapsed_s"] = self.now - swap["started"]
        running = next((stage for stage in swap["stages"] if stage["state"] == "running"), None)
        if swap["rescue"]:
            self._rescue(swap)
        elif swap["is_aborting"]:
            self._abort(swap, running)
        elif running is None:
            self._start(swap, next(stage for stage in swap["stages"] if stage["state"] == "waiting"))
        elif running["name"] != self.hold_at:
            self._finish(swap, running)

    def _start(self, swap: dict[str, Any], stage: dict[str, Any]) -> None:
        name = stage["name"]
        stage["state"], stage["started"] = "running", self.now
        swap["stage"], swap["n"] = name, STAGES.index(name)
        self.state = "draining" if name in ("plan", "drain") else "swapping"
        if name == "warm":
            stage["progress"] = {"done": 11 << 30, "total": 17 << 30, "unit": "bytes", "rate": 1.04e9, "eta_s": 6.0,
                                 "note": "61% was in page cache"}  # fmt: skip

    def _finish(self, swap: dict[str, Any], stage: dict[str, Any]) -> None:
        name = stage["name"]
        if name == self.fails:
            stage["state"], stage["took_s"] = "failed", float(LIMITS[name]) if self.how == "timeout" else TOOK[name]
            code, message, advice = (text.format(stage=name, limit=LIMITS[name]) for text in REASONS[self.how])
            swap["reason"] = {"code": code, "stage": name, "message": message, "advice": advice}
            self._skip(swap)
            swap["log"].append({"time": self.now, "text": f"{name} failed: {message}"})
            if name in ("plan", "drain"):
                self._end("refused" if name == "plan" else "aborted")
            else:
                self._begin_rescue(swap, swap["from"], swap["from_rev"], "rollback")
            return
        stage["state"], stage["took_s"], stage["detail"] = "ok", TOOK[name], DETAILS.get(name, "")
        swap["gap_s"] += TOOK[name] if name not in ("plan", "drain") else 0.0
        swap["log"].append({"time": self.now, "text": f"{name} ok: {stage['detail'] or 'done'}"})
        if name == "check":
            self.serving, self.serving_rev = swap["to"], swap["to_rev"]
            self._end("ready")

    def _abort(self, swap: dict[str, Any], running: dict[str, Any] | None) -> None:
        if running is not None:
            running["state"], running["took_s"] = "failed", self.now - running["started"]
        self._skip(swap)
        if swap["n"] <= 1:
            self._end("aborted")
        else:
            self._begin_rescue(swap, swap["from"], swap["from_rev"], "rollback")

    @staticmethod
    def _skip(swap: dict[str, Any]) -> None:
        for stage in swap["stages"]:
            if stage["state"] == "waiting":
                stage["state"] = "skipped"

    @staticmethod
    def _begin_rescue(swap: dict[str, Any], profile: str, rev: int, why: str) -> None:
        swap["rescue"].append({"profile": profile, "rev": rev, "why": why, "state": "running", "took_s": None,
                               "stage": "start", "reason": None})  # fmt: skip

    def _rescue(self, swap: dict[str, Any]) -> None:
        last = swap["rescue"][-1]
        last["took_s"], swap["gap_s"] = 4.3, swap["gap_s"] + 4.3
        is_ok = self.rescue == "ok" or (self.rescue == "fallback" and last["why"] == "fallback")
        last["state"] = "ok" if is_ok else "failed"
        if is_ok:
            is_rollback = last["why"] == "rollback"
            self.serving, self.serving_rev = last["profile"], last["rev"]
            self._end("rolled_back" if is_rollback else "fallback")
            return
        last["reason"] = f"{last['profile']} left with exit code 137"
        if last["why"] == "rollback":
            self._begin_rescue(swap, "fallback", 0, "fallback")
        else:
            self._end("crashed")

    def _end(self, how: str) -> dict[str, Any]:
        swap = self.current
        assert swap is not None
        swap["state"], swap["ended"] = how, self.now
        swap["elapsed_s"] = swap["ended"] - swap["started"]
        swap["held"] = {**swap["held"], "n": 0, "oldest_ms": None}
        times = " ".join(f"{stage['name']} {stage['took_s']}" for stage in swap["stages"] if stage["took_s"])
        swap["text"] = f"{swap['from']} -> {swap['to']} {how} {swap['elapsed_s']:.1f} s ({times})"
        swap["log"].append({"time": self.now, "text": swap["text"]})
        if how in ("rolled_back", "fallback", "crashed"):
            swap["engine_lines"] = [f"line {n}" for n in range(1, 5)] + ["got signal 15 from supervisor"]
        self.state = {"fallback": "degraded", "crashed": "crashed"}.get(how, "ready")
        self.done.append(swap)
        self.current = None
        return self._shown(swap)

    @staticmethod
    def _shown(swap: dict[str, Any]) -> dict[str, Any]:
        return {key: copy.deepcopy(value) for key, value in swap.items() if key != "key"}

    def play(self, fake: Fake) -> "Swaps":
        """Put the script on the stage of a scripted service; each look at the state is a step."""

        def state(_: Asked) -> tuple[int, Any]:
            self.step()
            profile = {**fake.state["profile"], "name": self.serving, "rev": self.serving_rev}
            more = {"time": self.now, "state": self.state, "swap": self.brief(), "last_swap": self.last()}
            held = {"n": 3 if self.current else 0, "oldest_ms": 2000 if self.current else None, "refused": 0}
            return 200, {**fake.state, "profile": profile, **more, "held": held}

        def begin(asked: Asked) -> tuple[int, Any]:
            status, document = self.begin(asked.body, asked.headers)
            if id := document.get("id"):
                fake.answers["GET", f"/admin/swap/{id}"] = lambda _: (200, self.find(id))
                fake.answers["POST", f"/admin/swap/{id}/abort"] = lambda _: self.abort(id)
            return status, document

        fake.answers["GET", "/admin/state"] = state
        fake.answers["POST", "/admin/swap"] = begin
        return self
