"""Log lines: shapes, request ids, and what must never be in one. Not here: who logs what."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance import logs
from appliance.settings import resolve
from engine.errors import UsageError


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = before, level
    logs._secrets.clear()


def started(path: Path, **flags: Any) -> logging.Logger:
    logs.start(resolve({"log_file": str(path), **flags}, {}).settings)
    return logs.get_logger("appliance.queue")


def test_json_lines_hold_time_level_fields_and_the_request(tmp_path: Path) -> None:
    log = started(tmp_path / "log", log_jsonl="true")
    with logs.about_request("req-1"):
        log.info("cancelled", **logs.fields(phase="prefill", waited_ms=12))
    log.info("idle")
    first, second = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert first["message"] == "cancelled" and first["request_id"] == "req-1" and first["phase"] == "prefill"
    assert first["time"].endswith("Z") and first["level"] == "info" and "request_id" not in second


def test_human_lines_are_one_line_whatever_the_message(tmp_path: Path) -> None:
    log = started(tmp_path / "log")
    with logs.about_request("req-2"):
        log.warning("a\n12:00:00 error forged", **logs.fields(path="x\x1b[2J"))
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1 and "\\x0a" in lines[0] and "\x1b" not in lines[0] and "[req-2]" in lines[0]


def test_a_key_is_blanked_wherever_it_turns_up(tmp_path: Path) -> None:
    for kind in ("true", "false"):
        log = started(tmp_path / kind, log_jsonl=kind, api_key="hunter2hunter2,second-key-99")
        log.info("got hunter2hunter2", **logs.fields(header="Bearer abc.def", other="sk-12345", more="second-key-99"))
        text = (tmp_path / kind).read_text()
        assert not [secret for secret in ("hunter2", "abc.def", "12345", "second-key") if secret in text]


def test_content_is_refused_by_its_name() -> None:
    for name in ("prompt", "messages", "content", "text", "api_key"):
        with pytest.raises(AssertionError, match=name):
            logs.fields(**{name: "x"})


def test_the_level_is_the_settings(tmp_path: Path) -> None:
    log = started(tmp_path / "log", log_level="warning")
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in (tmp_path / "log").read_text() and "loud" in (tmp_path / "log").read_text()


def test_a_log_file_that_cannot_be_opened_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        started(tmp_path / "missing" / "log")


def test_a_rotated_file_is_followed(tmp_path: Path) -> None:
    log = started(tmp_path / "log")
    log.info("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.info("two")
    assert "two" in (tmp_path / "log").read_text()
