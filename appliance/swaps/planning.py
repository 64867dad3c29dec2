"""What a swap to a profile would do, as one document: memory, checks, stages, changes, the way back. Not here: doing it
(swapper.py), the planner's own decisions (engine/planner.py), HTTP.

Everything comes from values that the caller hands in, the model file's header and what the page cache holds of it.
Nothing is allocated, and a fault of a model or a setting is a sentence in `errors`, never an exception.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from appliance.machine.pagecache import cached_share
from appliance.machine.rates import with_rates
from appliance.profiles import Profile, changes
from appliance.settings import Settings
from appliance.swaps import estimates
from appliance.swaps.estimates import Candidate
from appliance.swaps.model_facts import Identity, facts_of, identity
from appliance.swaps.plan_checks import Check, checks_of
from engine.budget import Machine, in_words, threads_for
from engine.errors import ColibriError
from engine.footprint import ModelFacts
from engine.gguf.split import model_name
from engine.planner import Plan, PlanRequest, assess
from engine.planner.beside import draft_bytes
from engine.planner.forecast import heat_of

# Keys that decide how many bytes the cache takes: their effect is told in bytes.
CACHE_KEYS = ("ctx_size", "cache_type_k", "cache_type_v", "parallel")


@dataclass(frozen=True, slots=True)
class InForce:
    """What serves now. `name` is empty for the command line's own settings; `identity` is the model file's when it was
    loaded (model_facts.identity), empty when that is not known."""

    name: str
    rev: int
    settings: Settings
    identity: Identity = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What settings come to on a machine, as far as it could be found out; `error` says what stopped that."""

    settings: Settings
    path: Path | None = None
    facts: ModelFacts | None = None
    plan: Plan | None = None
    error: ColibriError | None = None

    @property
    def verdict(self) -> str:
        """OK, TIGHT, PAGES, NO, or BAD for a file or a setting that cannot be used."""
        return self.plan.verdict if self.plan else "BAD"

    @property
    def reason(self) -> str:
        return self.error.message if self.error else self.plan.reason if self.plan else ""


def request_of(settings: Settings, machine: Machine) -> PlanRequest:
    """The planner's part of the settings; raises what a draft model's file does."""
    request = PlanRequest(
        n_ctx=settings.ctx_size, type_k=settings.cache_type_k, type_v=settings.cache_type_v,
        load_mode=settings.load_mode, ubatch_size=min(settings.ubatch_size, settings.batch_size),
        parallel=settings.parallel, threads=settings.threads,
        expert_cache=None if settings.cache_mb is None else settings.cache_mb << 20,
    )  # fmt: skip
    return with_draft(request, settings.draft_path(), settings.threads or threads_for(machine)[0])


def with_draft(request: PlanRequest, draft: Path | None, threads: int) -> PlanRequest:
    """The request with what the draft model takes, if there is one."""
    return replace(request, beside_bytes=draft_bytes(facts_of(draft), request, threads)) if draft else request


def look(settings: Settings, machine: Machine, freed_bytes: int = 0) -> Look:
    """Find the file, read its header, plan: whatever goes wrong is part of the answer."""
    path = facts = None
    try:
        path = settings.model_path()
        facts = facts_of(path)
        machine = with_rates(machine, path, settings.data_dir, settings.threads or threads_for(machine)[0])
        request = replace(request_of(settings, machine), heat=heat_of(facts, settings.heat_dir()))
        return Look(settings, path, facts, assess(facts, machine, request, freed_bytes))
    except ColibriError as error:
        return Look(settings, path, facts, None, error)


def plan_document(
    profile: Profile, settings: Settings, machine: Machine, *, in_force: InForce | None, freed_bytes: int,
    requests: Mapping[str, Any], past: Sequence[Mapping[str, Any]], overruled: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The answer of POST /admin/plan.

    `settings` are the profile's, resolved; `freed_bytes` is what the running worker gives back before the next one
    starts. `requests`: running, waiting, held_limit and, where known, eta_s of the longest. `past`: documents of swaps
    to this profile that succeeded, oldest first, with their file's size (`weights_bytes`) and the `cached` share of it.
    `overruled`: keys of the profile that the environment or a flag decides otherwise, and by what.
    """
    new = look(settings, machine, freed_bytes)
    old = look(in_force.settings, machine, freed_bytes) if in_force else None
    cached = cached_share(new.path) if new.path else None
    found = _changes(in_force, old, new)
    restart = _needs_restart(in_force, new, found)
    others = {key: by for key, by in overruled.items() if getattr(settings, key, None) != profile.values.get(key)}
    checks = checks_of(settings, new.path, new.facts, new.plan, new.error, machine, others)
    stages = _stages(new, cached, in_force, requests, past, restart)
    return {
        "name": profile.name, "rev": profile.rev, "verdict": new.verdict,
        "fits": new.verdict in ("OK", "TIGHT", "PAGES"), "reason": new.reason,
        **_numbers(new), "cached": cached, **_facts(new, machine),
        "stages": [stage.json() for stage in stages], "gap_s": estimates.gap_s(stages), "restart": restart,
        "changes": found,
        "requests": {key: requests.get(key) for key in ("running", "waiting", "held_limit")},
        "rollback": _rollback(in_force, old, settings),
        "side_effects": _side_effects(in_force, old, new, requests, restart),
        "warnings": _warnings(new, checks), "errors": _errors(new, checks),
        "checks": [check.json() for check in checks],
        "rows": [asdict(row) for row in new.plan.rows] if new.plan else [],
    }  # fmt: skip


def fit_row(settings: Settings, machine: Machine, freed_bytes: int = 0) -> dict[str, Any]:
    """The part of a plan that a list of profiles shows: under a millisecond for a file that was looked at before."""
    seen = look(settings, machine, freed_bytes)
    facts = _facts(seen, machine)
    kept = ("model", "parallel", "threads", "type_k", "type_v")
    numbers = _numbers(seen)
    sums = ("weights_bytes", "kv_bytes", "engine_bytes", "total_bytes", "budget_bytes", "spare_bytes")
    return {
        **{key: facts[key] for key in kept}, "ctx_size": facts["n_ctx"] or settings.ctx_size or None,
        "fit": seen.verdict, "fit_reason": seen.reason, **{key: numbers[key] for key in sums},
        "cached": cached_share(seen.path) if seen.path else None,
    }  # fmt: skip


def _numbers(seen: Look) -> dict[str, Any]:
    plan = seen.plan
    names = ("weights_bytes", "weights", "kv_bytes", "kv_bytes_per_token", "engine_bytes", "total_bytes",
             "budget_bytes", "budget_reason", "spare_bytes")  # fmt: skip
    if plan is None:
        return dict.fromkeys(names) | {"weights": {}}
    return {name: getattr(plan, name) for name in names}


def _facts(seen: Look, machine: Machine) -> dict[str, Any]:
    settings, plan, shape = seen.settings, seen.plan, seen.facts.shape if seen.facts else None
    name = seen.path.name if seen.path else Path(settings.model).name if settings.model else None
    return {
        "n_ctx": plan.n_ctx if plan else None, "n_ctx_train": shape.n_ctx_train if shape else None,
        "n_layers": shape.n_layers if shape else None, "n_kv_heads": shape.n_kv_heads if shape else None,
        "head_dim": shape.head_dim if shape else None, "type_k": settings.cache_type_k,
        "type_v": settings.cache_type_v, "parallel": settings.parallel,
        "threads": plan.threads if plan else settings.threads or machine.physical_cores,
        "load_mode": plan.load_mode if plan else settings.load_mode, "model": name,
        "size": seen.facts.file_bytes if seen.facts else None,
    }  # fmt: skip


def _candidate(seen: Look, cached: float | None) -> Candidate | None:
    if seen.plan is None or seen.path is None or seen.facts is None:
        return None
    return Candidate(seen.plan, seen.path, seen.facts.file_bytes, cached, seen.settings)


def _stages(
    new: Look, cached: float | None, in_force: InForce | None, requests: Mapping[str, Any],
    past: Sequence[Mapping[str, Any]], restart: bool,
) -> list[estimates.Estimate]:  # fmt: skip
    candidate = _candidate(new, cached)
    if candidate is None or not restart:
        return estimates.nothing_to_do(new.settings)
    return estimates.stages(candidate, in_force.settings if in_force else None, requests, past)


def _changes(in_force: InForce | None, old: Look | None, new: Look) -> list[dict[str, Any]]:
    """Keys that differ from what serves; where the cache's size hangs on them, with the bytes before and after."""
    if in_force is None:
        return []
    found = [change.json() for change in changes(in_force.settings.model_dump(), new.settings.model_dump())]
    before, after = (seen.plan if seen else None for seen in (old, new))
    for change in found:
        if change["key"] in CACHE_KEYS and before and after and before.kv_bytes != after.kv_bytes:
            change["effect"] = f"KV {in_words(before.kv_bytes)} -> {in_words(after.kv_bytes)}; {change['effect']}"
        if change["key"] == "model" and before and after:
            weights = f"{in_words(before.weights_bytes)} -> {in_words(after.weights_bytes)}"
            change["effect"] = f"weights {weights}; {change['effect']}"
    return found


def _needs_restart(in_force: InForce | None, new: Look, found: Sequence[Mapping[str, Any]]) -> bool:
    if in_force is None or any(change["kind"] == "engine" for change in found):
        return True
    return bool(in_force.identity) and new.path is not None and identity(new.path) != in_force.identity


def _rollback(in_force: InForce | None, old: Look | None, settings: Settings) -> dict[str, Any]:
    after = f"if that fails too, '{settings.fallback}'; waiting requests are kept through both"
    if in_force is None or old is None:
        text = f"nothing serves now, so '{settings.fallback}' is started if this one cannot be"
        return {"name": settings.fallback, "rev": None, "text": text}
    candidate = _candidate(old, cached_share(old.path) if old.path else None)
    if candidate is None:
        text = f"its model can be used no more ({old.reason}); {after}"
    elif candidate.cached is None:
        text = f"about {estimates.restart_s(candidate):g} s; {after}"
    else:
        text = f"still {candidate.cached:.0%} in page cache, about {estimates.restart_s(candidate):g} s; {after}"
    return {"name": in_force.name, "rev": in_force.rev, "text": text}


def _side_effects(
    in_force: InForce | None, old: Look | None, new: Look, requests: Mapping[str, Any], restart: bool
) -> list[str]:
    found = []
    leaving = in_force.settings if in_force else new.settings
    running, waiting = int(requests.get("running") or 0), int(requests.get("waiting") or 0)
    if restart and running:
        ends = f"ended with an error after {leaving.drain_timeout:g} s"
        rule = "finished first" if leaving.drain_policy == "finish" else f"finished first, or {ends}"
        found.append(f"{_count(running, 'running answer is', 'running answers are')} {rule}")
    if restart and waiting:
        found.append(f"{_count(waiting, 'waiting request is', 'waiting requests are')} held, not lost")
    if restart and requests.get("held_limit") is not None:
        found.append(f"API clients get 429 with Retry-After once {requests['held_limit']} requests are held")
    gone = sorted(_names(old) - _names(new)) if old else []
    if gone and new.path:
        known = ", ".join(f"'{name}'" for name in sorted(_names(new)))
        found.append(f"clients that ask for {', '.join(repr(name) for name in gone)} get 404; {known} will be known")
    if old and old.plan and new.plan and new.plan.n_ctx < old.plan.n_ctx:
        found.append(f"held prompts of over {new.plan.n_ctx:,} tokens get 400: the context is smaller than now")
    return found


def _names(seen: Look) -> set[str]:
    """Under which a model answers."""
    public = seen.settings.alias or (model_name(seen.path) if seen.path else None)
    return {name for name in (public, *seen.settings.aliases) if name}


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _warnings(new: Look, checks: Sequence[Check]) -> list[str]:
    found = list(new.plan.warnings) if new.plan else []
    return found + [check.detail for check in checks if check.result == "warn" and check.is_own]


def _errors(new: Look, checks: Sequence[Check]) -> list[str]:
    if new.verdict in ("BAD", "NO"):
        return [new.reason]
    return [check.detail for check in checks if check.result == "fail"]
