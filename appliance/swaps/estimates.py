"""How long each stage of a swap will take, and where each figure comes from. Not here: doing a swap (swapper.py).

The last swap to the same profile is the best teacher; without one a formula speaks, and its note says what it assumes.

    drain   the answers under way     stop    the old worker leaves     start   the new process, its compiled kernels
    warm    bytes not in the page cache / disk rate + the copy of the weights + one pass over them     check   the probe
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.machine.disk import is_rotating
from appliance.settings import Settings
from engine.budget import in_words
from engine.planner import Plan

STAGES = ("drain", "stop", "start", "warm", "check")
STOP_S = 0.2
START_S = 1.5
FIRST_START_S = 60.0
# Bytes per second where nothing was measured: a middling SSD, a rotating disk, copying weights into panels (1.1 to 1.4
# measured on two busy cores), reading memory with all cores.
SSD_RATE, ROTATING_RATE, COPY_RATE, MEMORY_RATE = 500e6, 120e6, 1.2e9, 8e9
PROBE_S = 0.2
# Below this much read from disk the disk's rate is lost among other things.
TELLING_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """One row of the review: seconds, the limit that ends the stage, and where the seconds come from."""

    name: str
    estimate_s: float
    limit_s: float | None
    note: str

    def json(self) -> dict[str, Any]:
        return {"name": self.name, "estimate_s": self.estimate_s, "limit_s": self.limit_s, "note": self.note}


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is to be started: its plan, its file and how much of that lies in the page cache (None: nobody knows)."""

    plan: Plan
    path: Path
    file_bytes: int
    cached: float | None
    settings: Settings

    @property
    def missing_bytes(self) -> int:
        if self.plan.load_mode == "stream":  # past the page cache, and only what is to stay
            return self.plan.pinned_bytes
        return round(self.file_bytes * (1 - (self.cached or 0.0)))


def stages(
    candidate: Candidate, old: Settings | None, requests: Mapping[str, Any], past: Sequence[Mapping[str, Any]]
) -> list[Estimate]:
    """The five stages. `old` are the settings of what serves now; `past` swaps to the same profile that succeeded, the
    newest last."""
    leaving = old or candidate.settings
    new = candidate.settings
    return [
        _drain(leaving, requests),
        _known("stop", past, leaving.stop_timeout) or Estimate("stop", STOP_S, leaving.stop_timeout, "the usual time"),
        _known("start", past, new.start_timeout)
        or Estimate("start", START_S, new.start_timeout,
                    f"kernels are compiled already; on a CPU that is new here some {FIRST_START_S:.0f} s more"),
        _warm(candidate, past),
        _known("check", past, new.check_timeout)
        or Estimate("check", round(PROBE_S + new.warmup_tokens * _pass_s(candidate.plan), 1), new.check_timeout,
                    f"a probe of {new.warmup_tokens} tokens; assumed: memory at {MEMORY_RATE / 1e9:g} GB/s"),
    ]  # fmt: skip


def nothing_to_do(settings: Settings) -> list[Estimate]:
    """The stages of a change that no worker has to be started for."""
    limits = (settings.drain_timeout, settings.stop_timeout, settings.start_timeout, settings.warm_timeout,
              settings.check_timeout)  # fmt: skip
    return [Estimate(name, 0.0, limit, "not needed") for name, limit in zip(STAGES, limits, strict=True)]


def gap_s(rows: Sequence[Estimate]) -> float:
    """Seconds in which nobody serves: all but the drain."""
    return round(sum(row.estimate_s for row in rows if row.name != "drain"), 1)


def restart_s(candidate: Candidate) -> float:
    """Seconds until a candidate serves again after a failed swap, by formula."""
    return round(STOP_S + START_S + _warm(candidate, ()).estimate_s + PROBE_S, 1)


def _drain(leaving: Settings, requests: Mapping[str, Any]) -> Estimate:
    running, waiting = int(requests.get("running") or 0), int(requests.get("waiting") or 0)
    held = f"; {waiting} waiting ones are held, not lost" if waiting else ""
    if not running:
        return Estimate("drain", 0.0, leaving.drain_timeout, f"nothing is running{held}")
    eta_s = requests.get("eta_s")
    what = f"{running} running"
    if eta_s is None:
        note = f"{what}, for how long is not known: the limit is shown{held}"
        return Estimate("drain", leaving.drain_timeout, leaving.drain_timeout, note)
    note = f"{what}, by their own speed{held}"
    if leaving.drain_policy == "cancel" and eta_s > leaving.drain_timeout:
        eta_s, note = leaving.drain_timeout, f"{what}, ended at the limit{held}"
    return Estimate("drain", round(float(eta_s), 1), leaving.drain_timeout, note)


def _warm(candidate: Candidate, past: Sequence[Mapping[str, Any]]) -> Estimate:
    limit = candidate.settings.warm_timeout
    missing = candidate.missing_bytes
    for swap in reversed(past):
        took_s = _took(swap, "warm")
        is_same = swap.get("weights_bytes") == candidate.file_bytes and took_s is not None
        if is_same and abs(_missing(swap) - missing) < max(TELLING_BYTES, 0.1 * candidate.file_bytes):
            return Estimate("warm", took_s or 0.0, limit, f"as in swap {swap.get('id', '?')}, as much of it cached")
    rate, source = _disk_rate(candidate.path, past)
    copy_s = candidate.plan.weights_bytes / COPY_RATE if candidate.plan.load_mode == "resident" else 0.0
    streamed_s = candidate.plan.stream_bytes_per_token / rate
    seconds = missing / rate + copy_s + 2 * (_pass_s(candidate.plan) + streamed_s) + PROBE_S
    if candidate.plan.load_mode == "stream":
        known = "read past the page cache"
    elif candidate.cached is None:
        known = "the kernel does not tell what is cached"
    else:
        known = f"{candidate.cached:.0%} is in the page cache"
    read = f"{in_words(missing)} to read at {rate / 1e6:.0f} MB/s ({source})" if missing else "nothing to read"
    return Estimate("warm", round(seconds, 1), limit, f"{known}; {read}")


def _pass_s(plan: Plan) -> float:
    return (plan.weights_bytes - plan.weights.get("embedding", 0) * 0.5) / MEMORY_RATE


def _disk_rate(path: Path, past: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    for swap in reversed(past):
        took_s, missing = _took(swap, "warm"), _missing(swap)
        if took_s and missing > TELLING_BYTES:
            return missing / took_s, f"measured in swap {swap.get('id', '?')}"
    try:
        rotating = is_rotating(os.stat(path).st_dev)
    except OSError:
        rotating = None
    if rotating:
        return ROTATING_RATE, "assumed, a rotating disk"
    return SSD_RATE, "assumed, nothing measured yet"


def _missing(swap: Mapping[str, Any]) -> int:
    """Bytes of its file that were not cached when that swap began; nothing when it did not note that."""
    cached, size = swap.get("cached"), swap.get("weights_bytes")
    return round((1 - cached) * size) if isinstance(cached, int | float) and isinstance(size, int | float) else 0


def _known(name: str, past: Sequence[Mapping[str, Any]], limit_s: float) -> Estimate | None:
    for swap in reversed(past):
        took_s = _took(swap, name)
        if took_s is not None:
            return Estimate(name, took_s, limit_s, f"as in swap {swap.get('id', '?')}")
    return None


def _took(swap: Mapping[str, Any], name: str) -> float | None:
    for stage in swap.get("stages") or ():
        if stage.get("name") == name and isinstance(stage.get("took_s"), int | float):
            return round(float(stage["took_s"]), 1)
    return None
