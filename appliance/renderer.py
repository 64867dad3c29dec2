"""The process that renders chat templates: foreign code under limits. Not here: who starts, times and kills it
(templates.py).

It speaks 4-byte length + JSON over the socket it finds as its standard input. A template sees what transformers gives
it (conversation.py); it can neither import, include nor open anything, nor change what it was given (jinja2's immutable
sandbox). What the sandbox does not stop, a limit does: 256 MB of address space, seconds of processor time, 4 MB of
output.
"""

import functools
import json
import resource
import socket
import struct
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from appliance.conversation import Refusal, Template, environment

ADDRESS_SPACE = 256 << 20
FRAME = 64 << 20
CPU_S = 3  # for one request; the parent kills after 2 s by the clock, this is for the day when there is no parent
OPEN_FILES = 16
REMEMBERED = 8

Reply = dict[str, Any]


class Stream(Protocol):
    """What frames need of a socket."""

    def recv(self, size: int, /) -> bytes: ...

    def sendall(self, data: bytes, /) -> None: ...


def read_frame(stream: Stream) -> Any | None:
    """One message, or None when the other side is gone."""
    head = _read(stream, 4)
    if head is None:
        return None
    (size,) = struct.unpack("<I", head)
    if size > FRAME:
        return None
    body = _read(stream, size)
    return None if body is None else json.loads(body.decode("utf-8", "surrogatepass"))


def write_frame(stream: Stream, message: object) -> None:
    """Lone surrogates travel as they are: whether they mean anything is not for a frame to say."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.sendall(struct.pack("<I", len(body)) + body)


def _read(stream: Stream, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        more = stream.recv(min(size - len(parts), 1 << 20))
        if not more:
            return None
        parts += more
    return bytes(parts)


class Templates:
    """Compiled templates, the last few."""

    def __init__(self) -> None:
        made_in = environment()
        self._of = functools.lru_cache(REMEMBERED)(lambda source: Template(made_in, source))

    def answer(self, request: dict[str, Any]) -> Reply:
        """{"text"} or {"error"}; a MemoryError is the caller's."""
        try:
            template = self._of(request["template"])
            if "context" not in request:
                template.try_out()
                return {"text": ""}
            return {"text": template.render(request["context"], datetime.fromisoformat(request["now"]))}
        except MemoryError:
            raise
        except Exception as error:
            return {"error": _words(error)}


def _words(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    text = " ".join(str(getattr(error, "message", None) or error).split())[:500]
    line = getattr(error, "lineno", None)
    name = "" if isinstance(error, Refusal) or line is not None else f" ({type(error).__name__})"
    return f"{text or type(error).__name__}{name}" + (f" (line {line})" if line is not None else "")


def _limit() -> None:
    """No more memory, files, file contents or core dumps than rendering needs."""
    for what, most in (
        (resource.RLIMIT_AS, ADDRESS_SPACE),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _grant_cpu(seconds: int) -> None:
    """So many more seconds of processor time; SIGXCPU ends the process after them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def serve(stream: Stream, answer: Callable[[dict[str, Any]], Reply]) -> int:
    """Answer requests until the other side closes, or until memory ran out once: the heap is torn then."""
    write_frame(stream, {"ready": True})
    while (request := read_frame(stream)) is not None:
        _grant_cpu(CPU_S)
        try:
            reply = answer(request)
        except MemoryError:
            write_frame(stream, {"last": True, "error": f"it needs more than {ADDRESS_SPACE >> 20} MB of memory"})
            return 1
        write_frame(stream, reply)
    return 0


def main() -> int:
    _limit()
    _grant_cpu(60)
    with socket.socket(fileno=0) as stream:
        try:
            return serve(stream, Templates().answer)
        except (ConnectionError, BrokenPipeError):
            return 0


if __name__ == "__main__":
    sys.exit(main())
