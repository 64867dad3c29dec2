"""Answers under way: one task each, any number of viewers, kept or cancelled when the last one leaves. Not here: HTTP.

An answer that only waits has no model yet: when another profile takes over, its requests are made anew for that one.

A client's disconnect cancels its answer at once. With an Idempotency-Key the work goes on and its result is kept for
ten minutes under (API key, Idempotency-Key, route, body). A request with the same body attaches to a running answer
only with the same API key and either the same Idempotency-Key or an SDK's word that it is a retry.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from appliance.api.errors import AnswerTimeout, public
from appliance.hints import hints
from appliance.metrics import Metrics
from appliance.request import Done, Event, GenerateRequest, Piece, Queued
from appliance.speech.speech import PLAIN, Speech
from appliance.ticket import Ticket
from engine.errors import Busy, ColibriError, QueueFull, Unavailable

KEEP_S = 600.0
KEPT_AT_MOST = 64
PLACE_POLL_S = 0.25
"""A request of several answers has waited in line for its first; for the next it waits for a place again."""


Make = Callable[[], Awaitable[list[GenerateRequest]]]
"""The requests of an answer, for the model that is in force when it is called; raises what makes them impossible."""


class Submits(Protocol):
    """What an answer needs of the dispatcher."""

    def submit(self, request: GenerateRequest) -> Ticket: ...
    def replace(self, request: GenerateRequest) -> None: ...
    def refuse_waiting(self, request_id: str, error: ColibriError) -> None: ...


class Speaks(Protocol):
    """Who answers just now: what is signed with, and the text that hands over to a person where there is one."""

    def fingerprint(self) -> str: ...
    def handover(self) -> str | None: ...
    def engine_info(self) -> Mapping[str, Any]: ...
    def handed_over(self, answer: str, reason: str, owner: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asked for what: `owner` is the API key's name, `digest` covers route and body."""

    owner: str
    digest: bytes
    idempotency_key: str | None = None
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for all of an answer, and for its decoding (None: no such limit)."""

    total_s: float
    decode_s: float | None = None


END = object()


@dataclass(eq=False)
class Generation:
    """The answers of one request, in order; `events` holds (choice, event) and only grows. `model` and `fingerprint`
    are settled when it begins; `echoes` are the texts of its prompts where the client wants them back."""

    name: str
    identity: Identity
    created: int
    requests: Sequence[GenerateRequest]
    limits: Limits
    make: Make
    speaker: Speaks
    model: str = ""
    fingerprint: str = ""
    echoes: tuple[str, ...] = ()
    events: list[tuple[int, Event]] = field(default_factory=list)
    error: BaseException | None = None
    ended: float | None = None
    _viewers: set["View"] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it goes on without a viewer."""
        return self.identity.idempotency_key is not None

    @property
    def has_begun(self) -> bool:
        """Whether an engine has taken it."""
        return bool(self.fingerprint)

    def speech(self, index: int) -> Speech:
        """How the answer with this number is to be read."""
        return self.requests[index].speech if index < len(self.requests) else PLAIN

    def hints(self, index: int, done: Done) -> list[str]:
        """What may have spoiled the answer with this number, which ended by `done`."""
        return hints(self.requests[index].sampling, done, self.speaker.engine_info())

    def view(self) -> "View":
        """A viewer that sees everything from the first event on; use it as an async context."""
        return View(self)

    def cancel(self, error: ColibriError | None = None) -> None:
        """Stop the work; viewers get `error`."""
        if self.ended is None and self._task is not None:
            self.error = self.error or error
            self._task.cancel()

    def _left(self) -> None:
        if not self._viewers and not self.is_kept:
            self.cancel()

    def _add(self, index: int, event: Event) -> None:
        if not self.has_begun and not isinstance(event, Queued):
            self.model, self.fingerprint = self.requests[index].model, self.speaker.fingerprint()
        self.events.append((index, event))
        self._wake()

    def _wake(self) -> None:
        for viewer in self._viewers:
            viewer.news.set()

    async def run(self, first: Ticket, dispatcher: Submits, metrics: Metrics) -> None:
        """Consume the tickets one after the other; what goes wrong is kept in `error` for the viewers."""
        try:
            async with asyncio.timeout(self.limits.total_s):
                index = 0
                while index < len(self.requests):
                    ticket = first if index == 0 else await self._place(index, dispatcher)
                    async with ticket:
                        await self._follow(index, ticket, metrics)
                    index += 1
        except TimeoutError:
            self.error = AnswerTimeout(
                f"the answer took longer than the {self.limits.total_s:.0f} s this server allows; ask for fewer tokens"
            )
        except asyncio.CancelledError:
            pass
        except (Busy, Unavailable) as error:
            self._hand_over(error, metrics)
        except Exception as error:
            self.error = error

    def handover(self) -> str | None:
        """The text that hands over to a person, where there is one; a row of a batch is asked again instead."""
        return None if any(request.lane == "batch" for request in self.requests) else self.speaker.handover()

    def _hand_over(self, error: ColibriError, metrics: Metrics) -> None:
        """No answer can come in time: the profile's own text instead, marked as what it is; else the error."""
        text = self.handover()
        if self.has_begun or text is None:
            self.error = error
            return
        metrics.handed_over(error.code)
        self.speaker.handed_over(self.name, error.code, self.identity.owner)
        self.requests = [replace(request, speech=PLAIN) for request in self.requests]  # no model wrote it
        self._add(0, Piece(text, []))
        self._add(0, Done("stop", None, 0, 0, 0, {}, None, handoff=error.code))

    async def renew(self, dispatcher: Submits) -> bool:
        """Make the requests anew if it only waits; False when the model now in force cannot answer it."""
        waiting = self.requests[0]
        try:
            self.requests = await self.make()
        except ColibriError as error:
            dispatcher.refuse_waiting(waiting.id, error)
            return False
        except Exception as error:  # a defect of ours must not keep the others waiting
            dispatcher.refuse_waiting(waiting.id, public(error, self.name))
            return False
        dispatcher.replace(self.requests[0])
        return True

    async def _follow(self, index: int, ticket: Ticket, metrics: Metrics) -> None:
        """All events of one answer; the client's own time limit ends it like its token limit."""
        watch = metrics.watch()
        try:
            async with asyncio.timeout(None) as clock:
                async for event in ticket:
                    watch.see(event)
                    if isinstance(event, Done) and event.finish_reason == "length" and self._is_bound(index):
                        metrics.unfit()
                    if isinstance(event, Piece) and self.limits.decode_s is not None and clock.when() is None:
                        clock.reschedule(asyncio.get_running_loop().time() + self.limits.decode_s)
                    self._add(index, event)
        except TimeoutError:
            metrics.cancelled(watch.phase)
            if not clock.expired():
                raise
            n_prompt = len(self.requests[index].prompt_ids)
            self._add(index, Done("length", None, n_prompt, 0, watch.n_generated, {}, None))
        except asyncio.CancelledError:
            metrics.cancelled(watch.phase)
            raise
        except ColibriError as error:
            if watch.phase == "queue":
                metrics.refused(error.code)
            else:
                metrics.failed(error.code)
            raise

    def _is_bound(self, index: int) -> bool:
        return bool(self.requests[index].sampling.grammar)

    async def _place(self, index: int, dispatcher: Submits) -> Ticket:
        while True:
            try:
                return dispatcher.submit(replace(self.requests[index], continues=True, deadline_ms=None))
            except QueueFull:
                await asyncio.sleep(PLACE_POLL_S)


class View:
    """Reads a generation from its first event; leaving the context lets go of it."""

    def __init__(self, generation: Generation) -> None:
        self.news = asyncio.Event()
        self._generation = generation
        self._next = 0

    async def __aenter__(self) -> "View":
        self._generation._viewers.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._generation._viewers.discard(self)
        self._generation._left()

    async def next(self, wait_s: float) -> Any:
        """The next (choice, event), None after `wait_s` without one, END after the last; raises what broke it off."""
        generation = self._generation
        while self._next == len(generation.events):
            if generation.ended is not None:
                if generation.error is not None:
                    raise generation.error
                return END
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                return None
        self._next += 1
        return generation.events[self._next - 1]


class Generations:
    """All answers under way and the kept ones."""

    def __init__(self, dispatcher: Submits, metrics: Metrics, speaker: Speaks, *,
                 clock: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._speaker = speaker
        self._clock = clock
        self._all: list[Generation] = []

    def running(self) -> list[Generation]:
        """Those that have not ended."""
        return [g for g in self._all if g.ended is None]

    def find(self, identity: Identity) -> Generation | None:
        """The answer a request may attach to, or None."""
        self._forget()
        for g in self._all:
            if (g.identity.owner, g.identity.digest) != (identity.owner, identity.digest):
                continue
            same_key = g.is_kept and g.identity.idempotency_key == identity.idempotency_key
            if same_key or (identity.is_retry and g.ended is None):
                return g
        return None

    def start(self, name: str, identity: Identity, requests: Sequence[GenerateRequest], limits: Limits,
              make: Make) -> Generation:  # fmt: skip
        """Submit the first answer (raising what the dispatcher raises) and follow it in a task of its own."""
        generation = Generation(name, identity, int(time.time()), requests, limits, make, self._speaker)
        try:
            ticket = self._dispatcher.submit(requests[0])
        except ColibriError as error:
            self._metrics.refused(error.code)
            if not isinstance(error, Busy | Unavailable) or generation.handover() is None:
                raise
            generation._hand_over(error, self._metrics)
            generation.ended = self._clock()
            return generation
        self._all.append(generation)
        generation._task = asyncio.create_task(self._run(generation, ticket), name=name)
        return generation

    # What a swap asks (appliance.swaps.swapper.Answers)

    def n_begun(self) -> int:
        return sum(g.has_begun for g in self.running())

    async def break_off(self, error: ColibriError) -> int:
        begun = [g for g in self.running() if g.has_begun]
        for g in begun:
            g.cancel(error)
        await asyncio.gather(*(g._task for g in begun if g._task is not None), return_exceptions=True)
        return len(begun)

    async def renew(self) -> int:
        waiting = [g for g in self.running() if not g.has_begun]
        return sum([not await g.renew(self._dispatcher) for g in waiting])

    async def close(self, error: ColibriError) -> None:
        """Break off everything; viewers get `error`."""
        tasks = [g._task for g in self.running() if g._task is not None]
        for g in self.running():
            g.cancel(error)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, generation: Generation, ticket: Ticket) -> None:
        try:
            await generation.run(ticket, self._dispatcher, self._metrics)
        finally:
            generation.ended = self._clock()
            generation.requests = [replace(r, prompt_ids=[]) for r in generation.requests]
            generation._wake()
            if not generation.is_kept or generation.error is not None or not _is_whole(generation):
                self._all.remove(generation)

    def _forget(self) -> None:
        old = self._clock() - KEEP_S
        kept = [g for g in self._all if g.ended is not None]
        for g in kept[: max(0, len(kept) - KEPT_AT_MOST)] + [g for g in kept if (g.ended or 0) < old]:
            if g in self._all:
                self._all.remove(g)


def _is_whole(generation: Generation) -> bool:
    return sum(isinstance(event, Done) for _, event in generation.events) == len(generation.requests)


def place(generation: Generation) -> Queued | None:
    """Where it stands in the queue, if that is the last that was heard of it."""
    event = generation.events[-1][1] if generation.events else None
    return event if isinstance(event, Queued) else None
