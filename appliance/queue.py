"""Who runs next: a pure state machine. Not here: a clock, asyncio, the worker (dispatch.py joins those).

Every happening is a method called with the time `now` in seconds (any clock that only grows); everything the queue
wants done goes through `Effects`. A job's life:

                 ┌───────────── cancel, tick, close ──────────────┐
    submit ──▶ waiting ──▶ running ──▶ (cancel) ──▶ stopping ──▶ gone
       └── refuse             └────────── finish ───────┘

A stopping job keeps its slot until `finish`, because the engine is still leaving its layer. The gate is `open` with a
number of slots, `paused` (a worker is coming: jobs wait) or `closed` (nobody will serve: jobs are refused). Beside the
gate there is a `hold`: nothing starts but what goes on with an answer already begun, and everybody else waits. While
people are about, the batch lane leaves one of several slots free, so that none of them waits for its rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from appliance.lane import LANES, Lane
from engine.errors import Busy, ColibriError, ModelLoading, QueueFull, QueueTimeout

LONGEST_RETRY_S = 600
TYPICAL_N = 128.0
"""Tokens of an answer until some have been counted."""
PEOPLE_S = 60.0
"""So long after the last request of another lane the batch lane still leaves a slot free."""


class DeadlineUnreachable(Busy):
    """It would start later than its client is willing to wait; saying so now spares both the wait."""

    code = "deadline_unreachable"


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """`waiting` jobs at most; each waits at most `timeout_s` (None: as long as it takes)."""

    waiting: int = 16
    timeout_s: float | None = 300.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured speeds, seconds per token, and how many tokens an answer has; None is not yet known."""

    prompt_s: float | None = None
    predict_s: float | None = None
    typical_n: float = TYPICAL_N

    def cost_s(self, n_prompt: int, n_predict: int | None) -> float | None:
        """Seconds for one job; an unlimited answer, or one with a generous limit, counts as a typical one. What is left
        of a running answer counts the same way: how long it has been says little about how long it will be."""
        if self.prompt_s is None or self.predict_s is None:
            return None
        n = self.typical_n if n_predict is None else min(float(n_predict), self.typical_n)
        return n_prompt * self.prompt_s + n * self.predict_s


@dataclass(slots=True)
class Job:
    """One request as the queue sees it: `n_prompt_done` and `n_generated` are told by `progress`; one that `continues`
    is a further choice of an answer that has begun, and starts in spite of a hold."""

    id: str
    lane: Lane
    n_prompt: int
    n_predict: int | None = None
    deadline_s: float | None = None
    continues: bool = False
    state: Literal["waiting", "running", "stopping"] = "waiting"
    submitted: float = 0.0
    started: float | None = None
    n_prompt_done: int = 0
    n_generated: int = 0


class Effects(Protocol):
    """What the queue asks of the world. None of these may call back into the queue before it returns."""

    def start(self, job: Job) -> None: ...
    def stop(self, job: Job) -> None:
        """Make a running job end early; `finish` is expected later."""

    def drop(self, job: Job) -> None:
        """A waiting job was cancelled and is gone."""

    def refuse(self, job: Job, error: ColibriError) -> None:
        """A job is gone without having run."""

    def moved(self, job: Job, position: int, eta_s: float | None) -> None:
        """A waiting job stands here now; 1 is next."""


@dataclass(slots=True)
class Queue:
    """`lanes` are served strictly in the order of LANES; inside a lane the first comes first. Nobody who runs is ever
    stopped for another: a row of a batch leaves when it is done, and the next in line may be a person.

    `slots`, `reopens` (a time), `closed` and `held` are the gate, which the methods move; `rates` is set by whoever
    measures.
    """

    effects: Effects
    lanes: Mapping[Lane, LaneLimit]
    slots: int = 0
    reopens: float | None = None
    closed: ColibriError | None = None
    held: bool = False
    n_refused: int = 0
    rates: Rates = field(default_factory=Rates)
    _active: dict[str, Job] = field(default_factory=dict)
    _waiting: dict[Lane, list[Job]] = field(default_factory=lambda: {lane: [] for lane in LANES})
    _told: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    _people: float = -math.inf

    # What happens to the queue

    def submit(self, job: Job, now: float) -> None:
        """Admit, start or refuse a new job:

        1. closed: refused with the reason it was closed for
        2. a slot is free for its lane (then nobody of it waits, or it would have been taken): started
        3. paused and the lane lets nobody wait: refused, the model is loading
        4. the lane is full: refused, with the time after which a place is likely
        5. its deadline is earlier than its turn: refused
        6. it waits, and is told where
        """
        assert job.id not in self._active and all(job.id != other.id for other in self.waiting()), job.id
        job.submitted = now
        if job.lane != "batch":
            self._people = now
        limit = self.lanes[job.lane]
        if self.closed is not None:  # 1
            return self.effects.refuse(job, self.closed)
        if self._may_start(job, now) and not (job.lane == "batch" and self._waiting["batch"]):  # 2
            return self._start(job, now)
        if (self.slots == 0 or self.held) and limit.waiting == 0:  # 3
            after = _retry_after(self.first_free_s(now))
            return self.effects.refuse(
                job, ModelLoading("the model is being loaded and no request may wait for it", retry_after_s=after)
            )
        lane = self._waiting[job.lane]
        if len(lane) >= limit.waiting:  # 4
            self.n_refused += self.held
            after = _retry_after(self.first_free_s(now))
            text = f"{len(lane)} requests wait already, as many as may; send it again in {after} s"
            return self.effects.refuse(job, QueueFull(text, retry_after_s=after))
        lane.append(job)
        eta = self.eta_s(job.id, now)
        if job.deadline_s is not None and eta is not None and eta > job.deadline_s:  # 5
            lane.pop()
            text = f"the answer could begin in about {eta:.0f} s, after the deadline of {job.deadline_s:.0f} s"
            return self.effects.refuse(job, DeadlineUnreachable(text, retry_after_s=_retry_after(eta - job.deadline_s)))
        return self._settle(now)  # 6

    def cancel(self, job_id: str, now: float) -> None:
        """Let go of a job in whatever state; unknown and already stopping ones are nobody's concern."""
        job = self._active.get(job_id)
        if job is not None:
            if job.state == "running":
                job.state = "stopping"
                self.effects.stop(job)
            return
        job = next((job for job in self.waiting() if job.id == job_id), None)
        if job is not None:
            self._waiting[job.lane].remove(job)
            self.effects.drop(job)
            self._settle(now)

    def finish(self, job_id: str, now: float) -> None:
        """The engine has let go of a running or stopping job, however it ended."""
        job = self._active.pop(job_id, None)
        if job is not None:
            if job.lane != "batch":
                self._people = now
            self._settle(now)

    def tick(self, now: float) -> None:
        """Refuse what has waited too long: for its lane, or for its own deadline. Refreshes positions and ETAs."""
        for lane, jobs in self._waiting.items():
            timeout = self.lanes[lane].timeout_s
            for job in list(jobs):
                waited = now - job.submitted
                limits = [limit for limit in (timeout, job.deadline_s) if limit is not None and waited >= limit]
                if limits:
                    jobs.remove(job)
                    after = _retry_after(self.first_free_s(now))
                    text = f"the request waited {waited:.0f} s of at most {min(limits):.0f} s; send it again later"
                    self.effects.refuse(job, QueueTimeout(text, retry_after_s=after))
        self._settle(now)

    def open(self, slots: int, now: float) -> None:
        """A worker takes that many jobs at once."""
        self.slots, self.closed = slots, None
        if not self.held:
            self.reopens = None
        self._settle(now)

    def pause(self, now: float, reopens_s: float | None = None) -> None:
        """No worker for now, one is coming (in so many seconds, if that is known). Running jobs end by `finish`."""
        self.slots, self.closed = 0, None
        if not self.held:
            self.reopens = None if reopens_s is None else now + reopens_s
        self._settle(now)

    def close(self, error: ColibriError, now: float) -> None:
        """Nobody will serve: refuse all who wait, and all who come until the next `open` or `pause`."""
        self.slots, self.closed, self.reopens = 0, error, None
        for jobs in self._waiting.values():
            for job in list(jobs):
                jobs.remove(job)
                self.effects.refuse(job, error)
        self._settle(now)

    def hold(self, now: float, reopens_s: float | None = None) -> None:
        """Start nothing new (for so many seconds, if that is known); those who wait keep their places."""
        self.held, self.n_refused = True, 0
        self.reopens = None if reopens_s is None else now + reopens_s
        self._settle(now)

    def release(self, now: float) -> None:
        """The hold is over: whoever waits may start, if the gate is open."""
        self.held, self.reopens = False, None
        self._settle(now)

    def shut(self, error: ColibriError, now: float) -> None:
        """Nobody serves for now: refuse all who come, and keep those who wait, since an operator may mend it."""
        self.slots, self.closed, self.reopens = 0, error, None
        self._settle(now)

    def resize(self, job_id: str, n_prompt: int, n_predict: int | None) -> bool:
        """A waiting job turned out to be larger or smaller; False when it does not wait any more."""
        job = next((job for job in self.waiting() if job.id == job_id), None)
        if job is not None:
            job.n_prompt, job.n_predict = n_prompt, n_predict
        return job is not None

    def progress(self, job_id: str, n_prompt_done: int, n_generated: int) -> None:
        """How far a running job has come, for the ETA of the others."""
        job = self._active.get(job_id)
        if job is not None:
            job.n_prompt_done, job.n_generated = n_prompt_done, n_generated

    # What can be asked

    def active(self) -> list[Job]:
        """Running and stopping jobs, the oldest first."""
        return list(self._active.values())

    def waiting(self) -> list[Job]:
        """Waiting jobs in the order they will start."""
        return [job for lane in LANES for job in self._waiting[lane]]

    def eta_s(self, job_id: str, now: float) -> float | None:
        """Seconds until a waiting job starts; None when it does not wait or nothing has been measured."""
        return self.etas(now).get(job_id)

    def etas(self, now: float) -> dict[str, float | None]:
        """The same of all who wait: each in turn takes the slot that is free first; one of unknown cost hides the ETA
        of all behind it."""
        free = self._slots_free_s(now)
        etas: dict[str, float | None] = {}
        for job in self.waiting():
            etas[job.id] = None
            if free is not None:
                # What is left free for people is no place for a row.
                n_kept = int(job.lane == "batch" and len(free) > 1 and self._batch_room(now) < self.slots)
                first = sorted(range(len(free)), key=free.__getitem__)[n_kept]
                etas[job.id] = free[first]
                cost = self.rates.cost_s(job.n_prompt, job.n_predict)
                free = None if cost is None else [*free[:first], free[first] + cost, *free[first + 1 :]]
        return etas

    def left_s(self, job: Job) -> float | None:
        """Seconds that an active job still takes, if that can be known."""
        if job.state == "stopping":
            return 0.0
        limit = None if job.n_predict is None else max(0, job.n_predict - job.n_generated)
        return self.rates.cost_s(job.n_prompt - job.n_prompt_done, limit)

    def first_free_s(self, now: float) -> float | None:
        """Seconds until the engine can take another job, if that can be known."""
        free = self._slots_free_s(now)
        return min(free) if free else None

    # Inside

    def _may_start(self, job: Job, now: float) -> bool:
        """Whether there is a slot for it, and none that is kept for somebody else."""
        if len(self._active) >= self.slots or (self.held and not job.continues):
            return False
        n_batch = sum(other.lane == "batch" for other in self._active.values())
        return job.lane != "batch" or n_batch < self._batch_room(now)

    def _batch_room(self, now: float) -> int:
        """Slots that rows of batches may have: all of them, or all but one while people are about."""
        are_about = now - self._people < PEOPLE_S or any(job.lane != "batch" for job in self._active.values())
        return self.slots - 1 if are_about and self.slots > 1 else self.slots

    def _start(self, job: Job, now: float) -> None:
        job.state, job.started = "running", now
        self._active[job.id] = job
        self._told.pop(job.id, None)
        self.effects.start(job)

    def _settle(self, now: float) -> None:
        """Fill free slots, then tell each waiting job its place if that has changed."""
        for job in self.waiting():
            if self._may_start(job, now):
                self._waiting[job.lane].remove(job)
                self._start(job, now)
        etas = self.etas(now)
        told: dict[str, tuple[int, int | None]] = {}
        for position, job in enumerate(self.waiting(), 1):
            eta = etas[job.id]
            told[job.id] = (position, None if eta is None else math.ceil(eta))
            if self._told.get(job.id) != told[job.id]:
                self.effects.moved(job, position, eta)
        self._told = told

    def _slots_free_s(self, now: float) -> list[float] | None:
        """For each slot, in how many seconds it is free; None when that cannot be known."""
        free = []
        for job in self._active.values():
            left = self.left_s(job)
            if left is None:
                return None
            free.append(left)
        if self.slots == 0 or self.held:
            return None if self.reopens is None else [*free, max(0.0, self.reopens - now)]
        return free + [0.0] * (self.slots - len(free))


def _retry_after(seconds: float | None) -> int:
    """Whole seconds for a Retry-After header; 5 where nothing is known."""
    return 5 if seconds is None else min(LONGEST_RETRY_S, max(1, math.ceil(seconds)))
