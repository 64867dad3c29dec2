"""Log lines for people or machines, with request ids; never a prompt, an answer or a key. Not here: the audit trail.

    log = get_logger("appliance.queue")
    log.info("cancelled", **fields(phase="prefill", waited_ms=12))

A field that would hold a prompt, an answer or a key is refused by its name, so it cannot be logged by accident, and
known secrets are blanked wherever they turn up.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from logging.handlers import WatchedFileHandler
from typing import Any

from appliance.settings import Settings
from engine.errors import UsageError

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
FORBIDDEN = {"prompt", "messages", "content", "text", "completion", "answer", "key", "api_key", "authorization"}
HIDDEN = "(hidden)"
_BEARER = re.compile(r"(?i)\b(bearer\s+|sk-)[^\s\"',;]+")
_secrets: set[str] = set()


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def fields(**values: Any) -> dict[str, Any]:
    """Keyword argument of a log call: `log.info("loaded", **fields(ms=12))`; content and secrets are refused."""
    wrong = FORBIDDEN & values.keys()
    assert not wrong, f"{', '.join(sorted(wrong))} must not be logged"
    return {"extra": {"fields": values}}


def hide(*secrets: str | None) -> None:
    """From now on these strings are blanked in every line; short ones are ignored, they would blank words."""
    _secrets.update(secret for secret in secrets if secret and len(secret) >= 6)


@contextmanager
def about_request(name: str) -> Iterator[None]:
    """Lines written inside carry the request's id."""
    mark = request_id.set(name)
    try:
        yield
    finally:
        request_id.reset(mark)


def start(settings: Settings) -> None:
    """Send this process's log to stderr or the settings' file; raises UsageError for a file that cannot be opened."""
    hide(*(settings.api_key or "").split(","))
    try:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        if settings.log_file:
            handler = WatchedFileHandler(settings.log_file)
    except OSError as error:
        raise UsageError(f"the log file {settings.log_file} cannot be opened: {error.strerror}") from None
    handler.setFormatter(JsonLines() if settings.log_jsonl else HumanLines())
    handler.addFilter(_mark)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    # aiohttp's access log repeats ours in another shape; its errors are worth keeping.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _mark(record: logging.LogRecord) -> bool:
    record.request_id = getattr(record, "request_id", None) or request_id.get()
    return True


def blank(text: str) -> str:
    """`text` without anything that looks like a key or is known to be one."""
    text = _BEARER.sub(lambda m: m[1] + HIDDEN, text)
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    return text


class JsonLines(logging.Formatter):
    """One object per line: time, level, logger, message, request_id and the call's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if getattr(record, "request_id", None):
            line["request_id"] = record.request_id  # type: ignore[attr-defined]
        line |= {k: v for k, v in getattr(record, "fields", {}).items() if k not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return blank(json.dumps(line, ensure_ascii=False, default=str))


class HumanLines(logging.Formatter):
    """`07:03:43 info    queue      cancelled  phase=prefill  [req-1]`; a newline in a message cannot forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("colibri.").removeprefix("appliance.")
        words = [f"{when} {record.levelname.lower():7} {name:10} {_one_line(record.getMessage())}"]
        words += [f"{key}={_one_line(str(value))}" for key, value in getattr(record, "fields", {}).items()]
        if getattr(record, "request_id", None):
            words.append(f"[{record.request_id}]")  # type: ignore[attr-defined]
        line = "  ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return blank(line)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _iso(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
