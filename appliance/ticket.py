"""One request's events on their way to whoever asked. Not here: where they come from (dispatch.py)."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType

from appliance.request import Done, Event, GenerateRequest, Piece, Prefill, Queued
from engine.errors import ColibriError

ACK_EVERY = 8
"""Pieces per acknowledgement: a quarter of the worker's window, so that a reader who keeps up never empties it."""


class RequestCancelled(ColibriError):
    """Somebody cancelled the request; only one who still iterates sees this."""

    status, code = 499, "client_closed_request"


class Ticket:
    """`async for event in ticket` yields events up to `Done`, or raises the ColibriError that ended the request.

    Use it as `async with ticket:`, so that leaving early, by whatever exception, cancels. Position and progress events
    that nobody has read yet are replaced by newer ones: only pieces accumulate, and those are bounded by credit.
    """

    def __init__(
        self,
        request: GenerateRequest,
        submitted: float,
        acknowledge: Callable[["Ticket", int], None],
        cancel: Callable[["Ticket"], None],
    ) -> None:
        self.request = request
        self.submitted = submitted
        self.position: int | None = None
        self.eta_ms: int | None = None
        self.queue_ms = 0.0
        self.n_prompt_done = 0
        self.n_generated = 0
        self.first_piece: float | None = None
        self.error: ColibriError | None = None
        self._acknowledge, self._cancel = acknowledge, cancel
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._unacknowledged = 0
        self._ended = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def waits(self) -> bool:
        """Still in the queue; `position` and `eta_ms` say where."""
        return self.position is not None

    def cancel(self, reason: str = "the client left") -> None:
        """Let go, in the queue, in prefill or in decode; nobody else is touched. After the end it does nothing."""
        if not self._ended:
            self.fail(RequestCancelled(f"the request was cancelled: {reason}"))
            self._cancel(self)

    def put(self, event: Event) -> None:
        """For the dispatcher: one more event."""
        if self._ended:
            return
        if isinstance(event, Queued):
            self.position, self.eta_ms = event.position, event.eta_ms
        else:
            self.position = self.eta_ms = None
        if isinstance(event, Queued | Prefill) and self._events and type(self._events[-1]) is type(event):
            self._events.pop()
        self._events.append(event)
        self._ended = isinstance(event, Done)
        self._arrived.set()

    def fail(self, error: ColibriError) -> None:
        """For the dispatcher: it ends here; events not yet read are still delivered, then the error."""
        if not self._ended:
            self.error, self._ended = error, True
            self._arrived.set()

    def __aiter__(self) -> "Ticket":
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self.error is not None:
                raise self.error
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, Piece):
            self._unacknowledged += 1
            if self._unacknowledged >= ACK_EVERY:
                self._acknowledge(self, self._unacknowledged)
                self._unacknowledged = 0
        return event

    async def __aenter__(self) -> "Ticket":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
