"""Chat templates, rendered in one warm helper process that can be killed. Not here: what runs in it (renderer.py).

Every place that renders comes through here: the API, the command line, the check at load. A template that hangs, eats
memory or dies costs its request 2 s at most, and nobody else anything but that wait.
"""

import asyncio
import atexit
import functools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from appliance.renderer import read_frame, write_frame
from engine.errors import EngineFailed, InvalidParameter, TemplateError

RENDER_S = 1.8  # so that the answer is out within 2 s
START_S = 20.0  # importing jinja2 takes 0.1 s; on a machine that swaps, much longer
_ROOT = Path(__file__).resolve().parent.parent
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_TIME", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")

Message = Mapping[str, Any]


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies whose content is one text: parts joined, null empty. InvalidParameter names a part that is no text."""
    return [{**message, "content": _content(message.get("content"), i)} for i, message in enumerate(messages)]


def _content(content: object, i: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidParameter(
            f"messages[{i}].content is of type {type(content).__name__}; send a text or a list of text parts",
            param=f"messages[{i}].content",
        )
    return "".join(_part(part, f"messages[{i}].content[{j}]") for j, part in enumerate(content))


def _part(part: object, where: str) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    kind = part.get("type", "text") if isinstance(part, dict) else "text"
    if kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
        raise InvalidParameter(f"{where} is of type {str(kind)[:40]!r}; this model reads text parts only", param=where)
    return text


class _Helper:
    """The process and its socket. Used by one thread at a time; kill() may come from any."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "appliance.renderer"], cwd="/", stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    process_group=0,  # a terminal's Ctrl-C is for the command, which still needs its renderer
                    env=env | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise EngineFailed(f"the template renderer could not be started: {error.strerror}") from None
        self._socket = ours
        self._is_ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply, or None when the process died over it. TimeoutError after RENDER_S."""
        if not self._is_ready:
            if self._within(time.monotonic() + START_S, None) is None:
                raise EngineFailed("the template renderer did not start; the machine may be out of memory")
            self._is_ready = True
        return self._within(time.monotonic() + RENDER_S, request)

    def _within(self, end: float, request: dict[str, Any] | None) -> dict[str, Any] | None:
        timed = _Timed(self._socket, end)
        try:
            if request is not None:
                write_frame(timed, request)
            reply = read_frame(timed)
        except TimeoutError:
            raise
        except (OSError, ValueError):
            return None
        return reply if isinstance(reply, dict) else None

    def kill(self) -> None:
        """End it and collect it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


class _Timed:
    """A socket whose operations share one deadline."""

    def __init__(self, stream: socket.socket, end: float) -> None:
        self._stream = stream
        self._end = end

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def recv(self, size: int, /) -> bytes:
        self._stream.settimeout(self._left())
        return self._stream.recv(size)

    def sendall(self, data: bytes, /) -> None:
        self._stream.settimeout(self._left())
        self._stream.sendall(data)


class Renderer:
    """Renders for many at once, one after the other. The process starts at once and again after each death."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._helper: _Helper | None = _Helper()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="template")

    async def render(
        self, template: str, messages: Sequence[Message], *, tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True, bos_token: str = "", eos_token: str = "",
        extra: Mapping[str, Any] | None = None, now: datetime | None = None,
    ) -> str:  # fmt: skip
        """The prompt. TemplateError has the template's own words; InvalidParameter is for content that is no text."""
        work = functools.partial(
            self.render_now, template, messages, tools=tools, add_generation_prompt=add_generation_prompt,
            bos_token=bos_token, eos_token=eos_token, extra=extra, now=now,
        )  # fmt: skip
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def render_now(
        self, template: str, messages: Sequence[Message], *, tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True, bos_token: str = "", eos_token: str = "",
        extra: Mapping[str, Any] | None = None, now: datetime | None = None,
    ) -> str:  # fmt: skip
        """As render(), for callers without an event loop."""
        context = {
            "documents": None, **(extra or {}), "messages": plain_messages(messages), "tools": tools,
            "add_generation_prompt": add_generation_prompt, "bos_token": bos_token, "eos_token": eos_token,
        }  # fmt: skip
        return self._ask({"template": template, "context": context, "now": (now or datetime.now()).isoformat()})

    async def check(self, template: str) -> None:
        """TemplateError for a template that no message can be rendered with."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.check_now, template)

    def check_now(self, template: str) -> None:
        """As check(), for callers without an event loop."""
        self._ask({"template": template})

    def _ask(self, request: dict[str, Any]) -> str:
        with self._lock:
            if self._closed:
                raise EngineFailed("the template renderer is closed; the service is stopping")
            if self._helper is None or not self._helper.is_alive:
                self._replace()
            assert self._helper is not None
            try:
                reply = self._helper.ask(request)
            except TimeoutError:
                self._replace()
                raise TemplateError(f"the chat template did not finish within {RENDER_S:g} s and was stopped") from None
            except BaseException:  # a Ctrl-C too: the reply it left unread would be taken for the next question's
                self._drop()
                raise
            if reply is None:
                self._replace()
                raise TemplateError("the chat template broke the process that rendered it (too much memory or nesting)")
            if "last" in reply:
                self._replace()
        if "text" not in reply:
            raise TemplateError(f"the chat template cannot be rendered: {reply.get('error', 'no reason given')}")
        return str(reply["text"])

    def _drop(self) -> None:
        if self._helper is not None:
            self._helper.kill()
        self._helper = None

    def _replace(self) -> None:
        self._drop()
        self._helper = _Helper()

    async def close(self) -> None:
        """End the process; renderings under way fail."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """As close(), for callers without an event loop."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._closed = True
            self._drop()

    def __enter__(self) -> "Renderer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_now()


@functools.cache
def _shared() -> Renderer:
    """The command line's renderer: one for all turns of a chat."""
    renderer = Renderer()
    atexit.register(renderer.close_now)
    return renderer


def render_now(template: str, messages: Sequence[Message], **options: Any) -> str:
    """Render without an event loop, in a process that stays warm until this one ends; options as Renderer.render."""
    return _shared().render_now(template, messages, **options)


def check(template: str) -> None:
    """TemplateError for a template that no message can be rendered with; at load, before anyone asks."""
    with Renderer() as renderer:
        renderer.check_now(template)
