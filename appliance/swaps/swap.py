"""One swap as it is told: its stages with times, limits and progress, how it ended and why. Not here: doing it
(swapper.py); this is a value that people and programs read while it changes.

    plan ─▶ drain ─▶ stop ─▶ start ─▶ warm ─▶ check ─▶ ready
      │        │       └───────┴────────┴───────┴─▶ rescue: the profile before ─▶ rolled_back
      ▼        ▼                                             └─▶ the fallback  ─▶ fallback
    refused  aborted (nothing was stopped yet)                       └─▶ nobody ─▶ crashed, the queue is kept
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from engine.errors import ColibriError

StageName = Literal["plan", "drain", "stop", "start", "warm", "check"]
STAGES: tuple[StageName, ...] = ("plan", "drain", "stop", "start", "warm", "check")
State = Literal[
    "running", "ready", "applied", "unchanged", "aborted", "rolled_back", "fallback", "crashed", "refused", "cut"
]
SUCCEEDED = ("ready", "applied", "unchanged")
MOST_LOG = 200
NOBODY_HELD = {"n": 0, "oldest_ms": None, "kept": 0, "lost": 0, "refused": 0}


@dataclass(slots=True)
class Progress:
    """How far a stage is, in `unit`s of its own: requests, kernels, bytes, tokens."""

    done: float
    total: float
    unit: str
    rate: float | None = None
    eta_s: float | None = None
    note: str = ""


@dataclass(slots=True)
class Stage:
    """Times are seconds since the epoch, limits and durations seconds; `limit_s` None is no limit."""

    name: StageName
    state: Literal["waiting", "running", "ok", "failed", "skipped"] = "waiting"
    limit_s: float | None = None
    started: float | None = None
    ended: float | None = None
    detail: str = ""
    progress: Progress | None = None

    @property
    def took_s(self) -> float | None:
        if self.started is None:
            return None
        return round((self.ended or time.time()) - self.started, 2)

    def json(self) -> dict[str, Any]:
        progress = asdict(self.progress) if self.progress else None
        return {
            "name": self.name, "state": self.state, "started": self.started, "took_s": self.took_s,
            "limit_s": self.limit_s, "detail": self.detail, "progress": progress,
        }  # fmt: skip


@dataclass(slots=True)
class Rescue:
    """One attempt to get somebody serving again after the wanted profile failed."""

    profile: str
    rev: int
    why: Literal["rollback", "fallback"]
    state: Literal["running", "ok", "failed"] = "running"
    stage: str = "stop"
    started: float = field(default_factory=time.time)
    ended: float | None = None
    reason: str | None = None

    def json(self) -> dict[str, Any]:
        took = round((self.ended or time.time()) - self.started, 2)
        shown = {"profile": self.profile, "rev": self.rev, "why": self.why, "state": self.state, "stage": self.stage}
        return {**shown, "took_s": took, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the wanted profile does not serve; `message` is what was seen, `advice` what to do."""

    code: str
    stage: str
    message: str
    advice: str


@dataclass(slots=True)
class Swap:
    """The record of one swap, from its acceptance to its end. `cached` is the share of the new file's `weights_bytes`
    that was in the page cache at the beginning, `tok_s` what the probe wrote."""

    id: str
    old: str
    old_rev: int
    new: str
    new_rev: int
    note: str = ""
    by: str = ""
    key: str | None = None
    state: State = "running"
    stage: StageName = "plan"
    started: float = field(default_factory=time.time)
    ended: float | None = None
    stages: list[Stage] = field(default_factory=lambda: [Stage(name) for name in STAGES])
    rescues: list[Rescue] = field(default_factory=list)
    reason: Reason | None = None
    held: dict[str, Any] = field(default_factory=lambda: dict(NOBODY_HELD))
    gap_began: float | None = None
    gap_ended: float | None = None
    is_aborting: bool = False
    tok_s: float | None = None
    cached: float | None = None
    weights_bytes: int = 0
    log: list[tuple[float, str]] = field(default_factory=list)
    engine_lines: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = field(default=lambda text: None, repr=False)

    def __getitem__(self, name: StageName) -> Stage:
        return self.stages[STAGES.index(name)]

    @contextmanager
    def during(self, name: StageName, limit_s: float | None = None) -> Iterator[Stage]:
        """A stage that ends with the block: ok, or failed by whatever exception leaves it."""
        self.stage, stage = name, self[name]
        stage.state, stage.started, stage.limit_s = "running", time.time(), limit_s
        try:
            yield stage
        except BaseException:
            self._close(stage, "failed")
            raise
        self._close(stage, "ok")

    def _close(self, stage: Stage, state: Literal["ok", "failed"]) -> None:
        stage.state, stage.ended = state, time.time()
        self.say(f"{stage.name} {state} {stage.took_s} s{': ' if stage.detail else ''}{stage.detail}")

    def say(self, text: str) -> None:
        """One line of its log, for events and readers alike."""
        self.tell(text)
        if len(self.log) < MOST_LOG:
            self.log.append((time.time(), text))

    def end(self, state: State) -> None:
        self.state, self.ended = state, time.time()
        for stage in self.stages:
            if stage.state == "waiting":
                stage.state = "skipped"

    @property
    def took_s(self) -> float:
        return round((self.ended or time.time()) - self.started, 2)

    @property
    def gap_s(self) -> float:
        """Seconds in which nobody served."""
        return round((self.gap_ended or time.time()) - self.gap_began, 2) if self.gap_began else 0.0

    @property
    def text(self) -> str:
        """The whole swap in one line."""
        took = f"{self.took_s:.1f} s"
        way = f"{self.old or 'the command line'} -> {self.new}"
        times = " ".join(f"{s.name} {s.took_s:.1f}" for s in self.stages if s.took_s is not None and s.name != "plan")
        if self.state in ("ready", "running"):
            return f"{way} {'ok' if self.ended else 'under way'} {took}{f' ({times})' if times else ''}"
        if self.state == "applied":
            return f"{way} applied without a stop, {took}"
        if self.state == "unchanged":
            return f"{self.new} serves already, nothing was done"
        serves = next((r.profile for r in self.rescues if r.state == "ok"), "")
        after = {"rolled_back": f"rolled back to {serves}", "fallback": f"{serves} serves instead",
                 "crashed": "nobody serves", "cut": "the server ended before it was complete"}  # fmt: skip
        words = after.get(self.state, self.state)
        return f"{way} {words}, {took}{': ' + self.reason.message if self.reason else ''}"

    def fail(self, error: ColibriError, code: str | None = None, advice: str = "") -> None:
        """Note the first reason; later ones belong to rescues."""
        if self.reason is None:
            self.reason = Reason(code or error.code, self.stage, error.message, advice)

    def json(self) -> dict[str, Any]:
        """The document of GET /admin/swap/{id}."""
        n = STAGES.index(self.stage)
        return {
            "id": self.id, "from": self.old, "from_rev": self.old_rev, "to": self.new, "to_rev": self.new_rev,
            "note": self.note, "by": self.by, "state": self.state, "stage": self.stage, "n": n, "of": len(STAGES) - 1,
            "is_aborting": self.is_aborting, "started": self.started, "ended": self.ended,
            "elapsed_s": self.took_s, "gap_s": self.gap_s,
            "stages": [stage.json() for stage in self.stages], "rescue": [rescue.json() for rescue in self.rescues],
            "reason": asdict(self.reason) if self.reason else None, "held": dict(self.held), "text": self.text,
            "tok_s": self.tok_s, "cached": self.cached, "weights_bytes": self.weights_bytes,
            "log": [{"time": at, "text": text} for at, text in self.log],
            "engine_lines": list(self.engine_lines),
        }  # fmt: skip
