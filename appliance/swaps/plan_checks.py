"""What must be right before a swap, one line each, for people to tick off. Not here: the plan they are taken from."""

import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from appliance.machine.kernel_files import read_text
from appliance.settings import Settings
from engine.budget import Machine, in_words, threads_for
from engine.cache.layout import row_bytes
from engine.errors import ColibriError, UsageError
from engine.footprint import ModelFacts
from engine.planner import Plan

CAP_IPC_LOCK = 14


@dataclass(frozen=True, slots=True)
class Check:
    """One line; `is_own` tells that no warning of the planner says the same."""

    text: str
    result: Literal["ok", "warn", "fail"]
    detail: str
    is_own: bool = False

    def json(self) -> dict[str, str]:
        return {"text": self.text, "result": self.result, "detail": self.detail}


def checks_of(
    settings: Settings, path: Path | None, facts: ModelFacts | None, plan: Plan | None, error: ColibriError | None,
    machine: Machine, overruled: Mapping[str, str],
) -> list[Check]:  # fmt: skip
    """Those that could be made: a file that is not there has no context to compare."""
    found = [_present(path, error)]
    if found[0].result == "ok":
        found.append(_header(facts, error))
    if facts is not None:
        found.append(_cache_types(settings, facts))
    if plan is not None and facts is not None:
        found += [_context(settings, plan, facts), _threads(plan, machine), _memory(plan)]
        if plan.load_mode == "mlock":
            found.append(_locking(facts))
    elif error is not None and found[-1].result == "ok":
        found.append(Check("settings usable", "fail", error.message))
    return [*found, _overruled(settings, overruled)]


def _present(path: Path | None, error: ColibriError | None) -> Check:
    text = "model file present and readable"
    if path is None:
        return Check(text, "fail", error.message if error else "no model is named")
    if not os.access(path, os.R_OK):
        return Check(text, "fail", f"{path} cannot be read by this user")
    return Check(text, "ok", str(path))


def _header(facts: ModelFacts | None, error: ColibriError | None) -> Check:
    text = "GGUF header whole, all tensors inside the file"
    if facts is None:
        return Check(text, "fail", error.message if error else "it was not read")
    return Check(text, "ok", f"{facts.n_tensors} tensors, {facts.shape.architecture}, {in_words(facts.file_bytes)}")


def _cache_types(settings: Settings, facts: ModelFacts) -> Check:
    dim = facts.shape.head_dim
    text = f"KV types {settings.cache_type_k} and {settings.cache_type_v} suit heads of {dim}"
    try:
        row_bytes(settings.cache_type_k, dim, "cache_type_k")
        row_bytes(settings.cache_type_v, facts.shape.v_dim, "cache_type_v")
    except UsageError as error:
        return Check(text, "fail", error.message)
    return Check(text, "ok", "")


def _context(settings: Settings, plan: Plan, facts: ModelFacts) -> Check:
    trained = facts.shape.n_ctx_train
    text = f"ctx {plan.n_ctx} within trained context {trained}"
    # What was rounded up to a whole page is not too long: the number asked for counts.
    if settings.ctx_size > trained:
        return Check(text, "warn", f"past {trained:,} positions answers may turn to nonsense; lower ctx_size")
    return Check(text, "ok", "")


def _threads(plan: Plan, machine: Machine) -> Check:
    best, reason = threads_for(machine)
    text = f"threads {plan.threads} <= {best} of this machine"
    if plan.threads > best:
        return Check(text, "warn", f"{best} would be right: {reason}")
    return Check(text, "ok", reason)


def _memory(plan: Plan) -> Check:
    sign = "<=" if plan.total_bytes <= plan.budget_bytes else ">"
    text = f"RAM {in_words(plan.total_bytes)} {sign} {in_words(plan.budget_bytes)} budget"
    result: Literal["ok", "warn", "fail"] = "ok" if plan.verdict == "OK" else "fail" if plan.verdict == "NO" else "warn"
    detail = f"budget = {plan.budget_reason}" if result == "ok" else f"{plan.reason}; budget = {plan.budget_reason}"
    return Check(text, result, detail, is_own=plan.verdict == "TIGHT")


def _locking(facts: ModelFacts) -> Check:
    text = "weights may be locked in memory"
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if soft == resource.RLIM_INFINITY or soft >= facts.file_bytes or _may_lock_all():
        return Check(text, "ok", "")
    words = f"{in_words(facts.file_bytes)} shall be locked and {in_words(soft)} may be"
    return Check(text, "warn", f"{words}; raise the memlock limit (ulimit -l)", is_own=True)


def _may_lock_all() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text(Path("/proc/self/status")), re.M)
    return bool(found and int(found[1], 16) >> CAP_IPC_LOCK & 1)


def _overruled(settings: Settings, overruled: Mapping[str, str]) -> Check:
    text = "every key of the profile counts"
    if not overruled:
        return Check(text, "ok", "")
    each = (f"{key} is {_shown(getattr(settings, key, None))} by {source}" for key, source in sorted(overruled.items()))
    return Check(text, "warn", f"the profile does not decide everything: {', '.join(each)}", is_own=True)


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
