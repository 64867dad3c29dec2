"""The process that renders chat templates: foreign code under limits. Not here: who starts, times and kills it
(templates.py).

It speaks 4-byte length + JSON over the socket it finds as its standard input. A template sees what transformers gives
it; it can neither import, include nor open anything, nor change what it was given (jinja2's immutable sandbox). What
the sandbox does not stop, a limit does: 256 MB of address space, seconds of processor time, 4 MB of output.
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

ADDRESS_SPACE = 256 << 20
OUTPUT = 4 << 20
FRAME = 64 << 20
CPU_S = 3  # for one request; the parent kills after 2 s by the clock, this is for the day when there is no parent
OPEN_FILES = 16
REMEMBERED = 8
NEEDLE = "[[colibri]]"

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


class Refusal(Exception):
    """What a template says by raise_exception()."""


def _raise(message: object = "") -> None:
    raise Refusal(str(message))


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    """As transformers has it: no HTML escapes, keys in the order given."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> Any:
    """A sandbox with the filters, globals and tags that chat templates count on."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks the assistant's part for training; for rendering it is what it holds."""

        tags = {"generation"}  # noqa: RUF012  jinja2 declares it as an instance variable

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    del made.globals["lipsum"]
    return made


class Templates:
    """Compiled templates and whether they want content as a list of parts."""

    def __init__(self) -> None:
        self._environment = environment()
        self._of = functools.lru_cache(REMEMBERED)(self._compile)

    def _compile(self, source: str) -> tuple[Any, bool]:
        template = self._environment.from_string(source)
        return template, not self._shows(template, NEEDLE) and self._shows(template, _parts(NEEDLE))

    def _shows(self, template: Any, content: object) -> bool:
        try:
            return NEEDLE in self._run(template, {"messages": [{"role": "user", "content": content}], "tools": None,
                                                  "documents": None, "add_generation_prompt": False, "bos_token": "",
                                                  "eos_token": ""}, datetime.now())  # fmt: skip
        except MemoryError:
            raise
        except Exception:
            return False

    def answer(self, request: dict[str, Any]) -> Reply:
        """{"text"} or {"error"}; a MemoryError is the caller's."""
        try:
            template, typed = self._of(request["template"])
            if "context" not in request:
                return {"text": ""}
            context = dict(request["context"])
            if typed:
                context["messages"] = [{**m, "content": _parts(m["content"])} for m in context["messages"]]
            return {"text": self._run(template, context, datetime.fromisoformat(request["now"]))}
        except MemoryError:
            raise
        except Exception as error:
            return {"error": _words(error)}

    def _run(self, template: Any, context: dict[str, Any], now: datetime) -> str:
        # A variable, not a global: compiled templates are kept and the clock is not.
        out: list[str] = []
        size = 0
        for chunk in template.generate({**context, "strftime_now": now.strftime}):
            size += len(chunk)
            if size <= OUTPUT:
                size += len(chunk.encode("utf-8", "surrogatepass")) - len(chunk)
            if size > OUTPUT:
                raise Refusal(f"it writes more than {OUTPUT >> 20} MB")
            out.append(chunk)
        return "".join(out)


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


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
