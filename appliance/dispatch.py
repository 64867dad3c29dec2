"""Joins queue and worker: a request goes in, a ticket full of events comes out. Not here: HTTP, who is next (queue.py).

    submit ─▶ Ticket ─▶ [queue] ─▶ generate frame ─▶ worker ─▶ prefill, piece, done frames ─▶ Ticket ─▶ async for

Everything runs on one event loop and nothing here waits: a reader who does not read leaves pieces unacknowledged, and
the worker then holds the text (outbox.py).
"""

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from appliance.frames import generate_frame, read_done, read_error, read_piece, read_prefill
from appliance.lane import LANES, Lane
from appliance.queue import Job, LaneLimit, Queue
from appliance.request import Done, GenerateRequest, Piece, Prefill, Queued
from appliance.speeds import Speeds
from appliance.supervisor import Supervisor
from appliance.ticket import Ticket
from appliance.wire import Frame
from engine.errors import ColibriError

TICK_S = 0.5


def lanes(max_queue: int, queue_timeout_s: float, max_queue_batch: int) -> dict[Lane, LaneLimit]:
    """The settings' numbers. Nobody watches a row of a batch, which may wait as long as its answer may take."""
    limit = LaneLimit(max_queue, queue_timeout_s)
    return {lane: LaneLimit(max_queue_batch, None) if lane == "batch" else limit for lane in LANES}


class Dispatcher:
    """The only one who speaks to the worker about requests. `clock` is in seconds and only grows."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        max_queue: int = 8,
        queue_timeout: float = 300.0,
        max_queue_batch: int = 64,
        lane_limits: Mapping[Lane, LaneLimit] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rescue: Callable[[ColibriError], bool] = lambda error: False
        self.speeds = Speeds()
        self._supervisor = supervisor
        self._clock = clock
        self._tickets: dict[str, Ticket] = {}
        self._direct: dict[str, Ticket] = {}
        self._queue = Queue(self, lane_limits or lanes(max_queue, queue_timeout, max_queue_batch))
        self._ticking: asyncio.Task[None] | None = None
        supervisor.listen(self)

    # What the API asks

    def submit(self, request: GenerateRequest) -> Ticket:
        """Take a request, or raise QueueFull, DeadlineUnreachable, ModelLoading or EngineDown at once."""
        assert request.id not in self._tickets, request.id
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(
                self._tick(), name="dispatch tick", context=contextvars.Context()
            )
        ticket = Ticket(request, self._clock(), self._acknowledge, self._cancel)
        self._tickets[request.id] = ticket
        deadline_s = None if request.deadline_ms is None else request.deadline_ms / 1000
        n_prompt = len(request.prompt_ids)
        job = Job(request.id, request.lane, n_prompt, request.max_tokens, deadline_s, request.continues)
        self._queue.submit(job, self._clock())
        if ticket.error is not None:  # refused on the spot: nobody will iterate
            raise ticket.error
        return ticket

    def direct(self, request: GenerateRequest) -> Ticket:
        """A request of our own that passes the queue and its hold; raises EngineDown without a worker."""
        ticket = Ticket(request, self._clock(), self._acknowledge, self._cancel)
        self._supervisor.send(generate_frame(request))
        self._tickets[request.id] = self._direct[request.id] = ticket
        return ticket

    # What a swap asks

    def hold(self, reopens_s: float | None = None) -> None:
        """Start no further request until `release`; those who come wait in the queue."""
        self._queue.hold(self._clock(), reopens_s)

    def release(self) -> None:
        self._queue.release(self._clock())

    def shut(self, error: ColibriError) -> None:
        """Refuse new requests with `error`, keep those who wait."""
        self._queue.shut(error, self._clock())

    def limit(self, max_queue: int, queue_timeout: float, max_queue_batch: int) -> None:
        """Other limits of the lanes from now on; who waits already may stay."""
        self._queue.lanes = lanes(max_queue, queue_timeout, max_queue_batch)

    def forget_speeds(self) -> None:
        """What was learned belongs to an engine that is no more."""
        self.speeds = Speeds()
        self._queue.rates = self.speeds.rates()

    def replace(self, request: GenerateRequest) -> None:
        """Give a waiting ticket the request that the model now in force needs; nothing if it waits no more."""
        ticket = self._tickets.get(request.id)
        if ticket is not None and self._queue.resize(request.id, len(request.prompt_ids), request.max_tokens):
            ticket.request = request

    def refuse_waiting(self, request_id: str, error: ColibriError) -> None:
        """End a waiting request with `error`; nothing if it waits no more."""
        ticket = self._tickets.get(request_id)
        if ticket is not None and any(job.id == request_id for job in self._queue.waiting()):
            ticket.fail(error)
            self._queue.cancel(request_id, self._clock())

    def n_active(self) -> int:
        """Requests that the engine has and has not let go of."""
        return len(self._queue.active())

    def held(self) -> dict[str, Any]:
        """Who waits because of a hold: how many, the oldest one's age, how many were refused since it began."""
        if not self._queue.held:
            return {"n": 0, "oldest_ms": None, "refused": 0}
        ages = [self._clock() - job.submitted for job in self._queue.waiting()]
        return {"n": len(ages), "oldest_ms": _ms(max(ages, default=None)), "refused": self._queue.n_refused}

    def snapshot(self) -> dict[str, Any]:
        """The queue as /admin/state shows it: numbers and ids, no prompt, no text."""
        now = self._clock()
        waiting, etas = self._queue.waiting(), self._queue.etas(now)
        return {
            "slots": self._queue.slots,
            "hold": self._queue.held,
            "held": self.held(),
            "running": [self._running(job, now) for job in self._queue.active()],
            "waiting": [
                {
                    "id": job.id,
                    "lane": job.lane,
                    "model": self._tickets[job.id].request.model,
                    "position": position,
                    "eta_ms": _ms(etas[job.id]),
                    "waited_ms": _ms(now - job.submitted),
                    "n_prompt": job.n_prompt,
                }
                for position, job in enumerate(waiting, 1)
            ],
            "lanes": {
                lane: {"waiting": sum(job.lane == lane for job in waiting), "limit": limit.waiting}
                for lane, limit in self._queue.lanes.items()
            },
            "speeds": asdict(self.speeds),
        }

    async def close(self) -> None:
        """Stop counting time. The supervisor's `stop` has refused the requests by then."""
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking

    # What the queue wants done (queue.Effects)

    def start(self, job: Job) -> None:
        ticket = self._tickets[job.id]
        ticket.queue_ms = (self._clock() - ticket.submitted) * 1e3
        try:
            self._supervisor.send(generate_frame(ticket.request))
        except ColibriError as error:
            # Not now: the queue is in the middle of a decision.
            asyncio.get_running_loop().call_soon(self._fail, job.id, error)

    def stop(self, job: Job) -> None:
        with contextlib.suppress(ColibriError):  # no worker: then it has stopped already
            self._supervisor.send({"type": "cancel", "id": job.id})

    def drop(self, job: Job) -> None:
        del self._tickets[job.id]

    def refuse(self, job: Job, error: ColibriError) -> None:
        self._tickets.pop(job.id).fail(error)

    def moved(self, job: Job, position: int, eta_s: float | None) -> None:
        self._tickets[job.id].put(Queued(position, _ms(eta_s)))

    # What the supervisor tells (supervisor.Listener)

    def worker_coming(self) -> None:
        self._queue.pause(self._clock())

    def worker_ready(self, info: dict[str, Any]) -> None:
        self._queue.open(int(info.get("n_parallel") or 1), self._clock())

    def worker_lost(self, error: ColibriError) -> None:
        self._queue.pause(self._clock())
        self._fail_active(error)

    def worker_gone(self, error: ColibriError) -> None:
        if self.rescue(error):  # another profile will be tried: those who wait stay
            self._queue.pause(self._clock())
        else:
            self._queue.close(error, self._clock())
        self._fail_active(error)

    def worker_frame(self, frame: Frame) -> None:
        ticket = self._tickets.get(frame["id"])
        if ticket is None:
            return  # a request that ended on this side first
        match frame["type"]:
            case "prefill":
                self._prefill(ticket, read_prefill(frame))
            case "piece":
                self._piece(ticket, read_piece(frame))
            case "done":
                self._done(ticket, read_done(frame, ticket.queue_ms))
            case "cancelled":
                self._forget(ticket)
            case "error":
                self._fail(ticket.request.id, read_error(frame["error"]))

    # Inside

    def _prefill(self, ticket: Ticket, prefill: Prefill) -> None:
        ticket.n_prompt_done = prefill.done
        self._queue.progress(ticket.request.id, prefill.done, 0)
        ticket.put(prefill)

    def _piece(self, ticket: Ticket, piece: Piece) -> None:
        if ticket.first_piece is None:
            ticket.first_piece = self._clock()
        ticket.n_prompt_done = len(ticket.request.prompt_ids)
        ticket.n_generated += len(piece.ids)
        self._queue.progress(ticket.request.id, ticket.n_prompt_done, ticket.n_generated)
        ticket.put(piece)

    def _done(self, ticket: Ticket, done: Done) -> None:
        self.speeds.learn(done)
        self._queue.rates = self.speeds.rates()
        self._supervisor.served()
        ticket.put(done)
        self._forget(ticket)

    def _fail(self, request_id: str, error: ColibriError) -> None:
        ticket = self._tickets.get(request_id)
        if ticket is not None:
            ticket.fail(error)
            self._forget(ticket)

    def _fail_active(self, error: ColibriError) -> None:
        for request_id in [*(job.id for job in self._queue.active()), *self._direct]:
            self._fail(request_id, error)

    def _forget(self, ticket: Ticket) -> None:
        self._tickets.pop(ticket.request.id, None)
        self._direct.pop(ticket.request.id, None)
        self._queue.finish(ticket.request.id, self._clock())

    def _acknowledge(self, ticket: Ticket, n: int) -> None:
        if ticket.request.id in self._tickets:
            with contextlib.suppress(ColibriError):
                self._supervisor.send({"type": "ack", "id": ticket.request.id, "n": n})

    def _cancel(self, ticket: Ticket) -> None:
        if ticket.request.id in self._direct:
            with contextlib.suppress(ColibriError):
                self._supervisor.send({"type": "cancel", "id": ticket.request.id})
        self._queue.cancel(ticket.request.id, self._clock())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._queue.tick(self._clock())

    def _running(self, job: Job, now: float) -> dict[str, Any]:
        ticket = self._tickets[job.id]
        first = ticket.first_piece
        decoding_s = 0.0 if first is None else now - first
        return {
            "id": job.id,
            "lane": job.lane,
            "model": ticket.request.model,
            "state": job.state,
            "phase": "decode" if ticket.n_generated else "prefill",
            "n_prompt": job.n_prompt,
            "n_prompt_done": job.n_prompt_done,
            "n_generated": job.n_generated,
            "max_tokens": job.n_predict,
            "running_ms": _ms(now - (job.started if job.started is not None else now)),
            "queue_ms": ticket.queue_ms,
            "ttft_ms": None if first is None else _ms(first - ticket.submitted),
            "tok_s": round((job.n_generated - 1) / decoding_s, 2) if decoding_s > 0 and job.n_generated > 1 else None,
            "eta_ms": _ms(self._queue.left_s(job)),
        }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e3)
