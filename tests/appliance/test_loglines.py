"""Kept log lines: sources, levels, paging, what is dropped, what never stands in them."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance import logs
from appliance.loglines import LINE_CHARS, LogLines


@pytest.fixture
def lines() -> Iterator[LogLines]:
    """A ring of ten that listens to everything."""
    top = logging.getLogger("colibri")
    before = top.level
    top.setLevel(logging.DEBUG)
    with LogLines(kept=10).listening() as kept:
        yield kept
    top.setLevel(before)


def say(logger: str, text: str, level: int = logging.INFO, **more: Any) -> None:
    logging.getLogger(logger).log(level, "%s", text, **more)


def texts(page: dict[str, Any]) -> list[str]:
    return [line["text"] for line in page["lines"]]


def test_each_logger_has_its_source(lines: LogLines) -> None:
    for name in ("worker", "supervisor", "swap", "swapper", "api", "access", "serve", "api.inner"):
        say(f"colibri.{name}", name)
    say("colibri", "top")
    say("aiohttp.server", "another library's")
    page = lines.read(None, 100)
    assert [line["source"] for line in page["lines"]] == [
        "engine", "supervisor", "swap", "swap", "api", "api", "server", "api", "server",
    ]  # fmt: skip
    assert [line["id"] for line in page["lines"]] == list(range(1, 10))
    assert page["next"] == 9


def test_a_line_is_the_message_its_fields_and_its_request(lines: LogLines) -> None:
    with logs.about_request("req-1"):
        say("colibri.api", "POST /v1/x", **logs.fields(status=200, ms=12))
    say("colibri.worker", "| kernel 3 of 9")
    assert texts(lines.read(None, 9)) == ["POST /v1/x  status=200  ms=12  [req-1]", "kernel 3 of 9"]


def test_levels_are_words_and_filter(lines: LogLines) -> None:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        say("colibri.api", str(level), level)
    assert [line["level"] for line in lines.read(None, 9)["lines"]] == ["debug", "info", "warning", "error", "error"]
    page = lines.read(0, 9, "warning")
    assert texts(page) == ["30", "40", "50"]
    assert page["next"] == 5


def test_a_reader_pages_through_everything_once(lines: LogLines) -> None:
    for i in range(7):
        say("colibri.api", f"n{i}", logging.INFO if i % 2 else logging.ERROR)
    seen, after = [], 0
    while (page := lines.read(after, 2))["lines"]:
        seen += texts(page)
        after = page["next"]
    assert seen == [f"n{i}" for i in range(7)]
    page = lines.read(0, 2, "error")
    assert texts(page) + texts(lines.read(page["next"], 2, "error")) == ["n0", "n2", "n4", "n6"]
    assert texts(lines.read(None, 2)) == ["n5", "n6"], "without a place to go on from, the newest"


def test_lines_that_left_the_ring_are_counted(lines: LogLines) -> None:
    for i in range(25):
        say("colibri.api", f"n{i + 1}")
    page = lines.read(3, 100)
    assert (page["dropped"], page["lines"][0]["id"], len(page["lines"])) == (12, 16, 10)
    assert lines.read(15, 100)["dropped"] == 0
    assert lines.read(None, 100)["dropped"] == 0


def test_a_place_of_an_earlier_start_reads_from_the_oldest(lines: LogLines) -> None:
    say("colibri.api", "only")
    assert texts(lines.read(4000, 100)) == ["only"]


def test_no_control_character_no_secret_no_endless_line(lines: LogLines) -> None:
    logs.hide("hunter2hunter2")
    say("colibri.worker", "\x1b[31mred\nforged hunter2hunter2")
    say("colibri.worker", "z" * 50_000)
    first, second = texts(lines.read(None, 9))
    assert first == " [31mred forged (hidden)"
    assert len(second) == LINE_CHARS


def test_an_exception_is_named_without_its_words(lines: LogLines) -> None:
    try:
        raise ValueError("the prompt was: secret plans")
    except ValueError:
        logging.getLogger("colibri.api").exception("it failed")
    assert texts(lines.read(None, 1)) == ["it failed  (ValueError; the log file has its place)"]


def test_after_the_end_nothing_is_kept() -> None:
    with LogLines().listening() as kept:
        pass
    say("colibri.api", "later", logging.ERROR)
    assert kept.read(None, 9)["lines"] == []


def test_threads_lose_no_line() -> None:
    with LogLines(kept=2000).listening() as kept:
        threads = [
            threading.Thread(target=lambda: [say("colibri.api", "x", logging.ERROR) for _ in range(200)])
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [line["id"] for line in kept.read(0, 2000)["lines"]] == list(range(1, 1001))
