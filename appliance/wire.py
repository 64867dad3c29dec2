"""How the API process and the worker talk: frames over a Unix socket. Not here: what a frame means (frames.py).

    ┌──────────────┬───────────────────────────────┐
    │ length, 4 B  │ JSON object with "type", utf-8 │    length: big-endian, 2 … 16 MiB
    └──────────────┴───────────────────────────────┘

Both sides open with {"type": "hello", "protocol": 1} and hang up on another number. A frame that is too long or is not
such an object ends this connection and nothing else. `Unpacker` knows no socket, so the asyncio side (`read_frame`) and
the worker's side (`Line`) cannot disagree.
"""

import asyncio
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from engine.errors import ColibriError

PROTOCOL = 1
MAX_FRAME = 16 << 20
HEAD = 4

Frame = dict[str, Any]


class WireError(ColibriError):
    """The other side does not speak this protocol; the connection is of no further use."""

    code = "wire_error"


def _no_constant(name: str) -> float:
    raise ValueError(f"the number {name}")


def pack(frame: Mapping[str, Any]) -> bytes:
    """The frame's bytes; raises WireError when it is larger than MAX_FRAME or holds NaN or an infinity."""
    try:
        body = json.dumps(frame, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise WireError(f"a {frame.get('type')} frame cannot be written as JSON: {error}") from error
    if len(body) > MAX_FRAME:
        raise WireError(f"a {frame.get('type')} frame of {len(body):,} bytes is above the limit of {MAX_FRAME:,}")
    return len(body).to_bytes(HEAD, "big") + body


def _length(head: bytes) -> int:
    n = int.from_bytes(head, "big")
    if not 2 <= n <= MAX_FRAME:
        raise WireError(f"a frame claims {n:,} bytes; 2 to {MAX_FRAME:,} are possible")
    return n


def unpack(body: bytes) -> Frame:
    """The frame in `body` (without its length); raises WireError for anything but a JSON object with a text "type"."""
    try:
        frame = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame of {len(body):,} bytes is not JSON: {type(error).__name__}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise WireError("a frame is not a JSON object with a text in 'type'")
    return frame


class Unpacker:
    """Cuts a byte stream into frames, however it was chopped on the way."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames that `data` completes. After a WireError the unpacker must not be fed again."""
        self._bytes += data
        while len(self._bytes) >= HEAD:
            end = HEAD + _length(bytes(self._bytes[:HEAD]))
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[HEAD:end])
            del self._bytes[:end]
            yield unpack(body)


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, or None when the other side has hung up (in the middle of a frame too)."""
    try:
        n = _length(await reader.readexactly(HEAD))
        return unpack(await reader.readexactly(n))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def check_hello(frame: Frame | None) -> Frame:
    """The hello itself, or WireError when it is none or of another version."""
    if frame is None or frame["type"] != "hello":
        raise WireError(f"the first frame is {frame and frame['type']!r}, expected a hello")
    if frame.get("protocol") != PROTOCOL:
        raise WireError(
            f"the other side speaks protocol {frame.get('protocol')!r}, this one {PROTOCOL}: "
            "API and worker are from different installations; reinstall, then start again"
        )
    return frame


class Line:
    """The worker's end: any thread posts without ever waiting, one thread pumps.

    `post` writes straight into the socket when nothing is queued, so that the engine thread's piece needs no other
    thread to wake up (both cores are busy computing); what the socket does not take is kept for `pump`.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._unpacker = Unpacker()
        self._lock = threading.Lock()
        self._backlog: deque[memoryview] = deque()
        self._lost = False
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)

    def post(self, frame: Mapping[str, Any]) -> None:
        """Send soon. Silently nothing once the line is lost: `pump` reports that, once."""
        data = memoryview(pack(frame))
        with self._lock:
            if self._lost:
                return
            if not self._backlog:
                data = self._write(data)
            if not data:
                return
            self._backlog.append(data)
        self.wake()

    def wake(self) -> None:
        """Make a waiting `pump` return now. Safe from any thread and from a signal handler."""
        try:
            self._waker.send(b"!")
        except OSError:
            return  # the pipe is full (it will wake up) or closed (nobody is there)

    def pump(self, timeout_s: float) -> list[Frame]:
        """Wait at most so long for something to happen, write what is left, return what came.

        Raises ConnectionError when the other side is gone and WireError when it sends nonsense.
        """
        poll = select.poll()
        with self._lock:
            wants = select.POLLIN | (select.POLLOUT if self._backlog else 0)
        poll.register(self.sock, wants)
        poll.register(self._woken, select.POLLIN)
        ready = dict(poll.poll(max(0, int(timeout_s * 1000))))
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        with self._lock:
            while self._backlog and not self._lost:
                rest = self._write(self._backlog[0])
                if rest:
                    self._backlog[0] = rest
                    break
                self._backlog.popleft()
        frames = self._read() if ready.get(self.sock.fileno(), 0) & ~select.POLLOUT else []
        if self._lost:
            raise ConnectionError("the API process has hung up")
        return frames

    def drain(self, timeout_s: float) -> None:
        """Write the backlog before leaving, waiting at most so long for a reader."""
        with self._lock:
            self.sock.settimeout(timeout_s)
            try:
                while self._backlog and not self._lost:
                    self.sock.sendall(self._backlog.popleft())
            except OSError:
                self._lost = True

    def close(self) -> None:
        for end in (self.sock, self._waker, self._woken):
            end.close()

    def _write(self, data: memoryview) -> memoryview:
        try:
            return data[self.sock.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            self._lost = True
            return memoryview(b"")

    def _read(self) -> list[Frame]:
        frames: list[Frame] = []
        try:
            while data := self.sock.recv(1 << 16):
                frames.extend(self._unpacker.feed(data))
            self._lost = True
        except BlockingIOError:
            pass
        except OSError:
            self._lost = True
        return frames
