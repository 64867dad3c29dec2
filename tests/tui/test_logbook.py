"""Lines of several sources in one order, at most 5,000 of them, floods named and not shown."""

import pytest

from tui.logbook import KEPT, LINE_CHARS, RATE, Entry, Logbook, matches


def line(time: float, text: str = "x", level: str = "info", source: str = "engine") -> Entry:
    return Entry(time, level, source, text)


def texts(book: Logbook) -> list[str]:
    return [entry.text for entry in book.entries]


def test_sources_are_merged_by_time_and_keep_their_own_order() -> None:
    book = Logbook()
    book.add([line(1, "a"), line(3, "c"), line(3, "d")], 0.0)
    book.add([line(2, "b", source="docker"), line(3, "e", source="docker"), line(0.5, "0", source="kernel")], 0.1)
    assert texts(book) == ["0", "a", "b", "c", "d", "e"]


def test_a20_a_hundred_thousand_lines_leave_five_thousand() -> None:
    """60 seconds with 1,667 lines each, one of them 1 MB long."""
    book, n, n_held = Logbook(), 0, 0
    for second in range(60):
        batch = [line(second + i / 2000, f"line {n + i}") for i in range(1667)]
        if second == 30:
            batch[5] = line(second, "y" * (1 << 20))
        n += len(batch)
        n_held += book.add(batch, float(second))
        assert len(book.entries) <= KEPT
    assert max(len(entry.text) for entry in book.entries) <= LINE_CHARS
    assert n_held == n - 60 * RATE
    assert book.entries[-1].text == f"line {n - 1}", "the newest is always there"


def test_what_was_held_back_is_named_in_its_place() -> None:
    book = Logbook()
    held = book.add([line(i / 1000, f"{i}") for i in range(1000)], 0.0)
    assert held == 1000 - RATE
    assert book.entries[0].text == "... 800 lines held back (200 lines/s are shown)"
    assert texts(book)[1] == "800" and texts(book)[-1] == "999"


def test_the_rate_recovers_with_time_and_a_backlog_is_taken_whole() -> None:
    book = Logbook()
    assert book.add([line(i) for i in range(1500)], 0.0, is_backlog=True) == 0
    assert book.add([line(2000 + i) for i in range(RATE)], 0.0) == 0
    assert book.add([line(3000)], 0.0) == 1, "the second's worth is used up"
    assert book.add([line(4000 + i) for i in range(RATE // 2)], 0.5) == 0


def test_level_and_source_choose_but_gaps_and_marks_stay() -> None:
    book = Logbook()
    book.add([line(1, "d", "debug"), line(2, "i"), line(3, "w", "warning", "api"), line(4, "e", "error"),
              line(5, "odd", "loud")], 0.0)  # fmt: skip
    book.gap("lost", 3)
    book.mark(6, "06")
    every = ("engine", "api")
    assert [e.text for e in book.seen("debug", every)] == ["d", "i", "... lost", "w", "e", "odd", "-- mark 06 "]
    assert [e.text for e in book.seen("warning", every)] == ["... lost", "w", "e", "-- mark 06 "]
    assert [e.text for e in book.seen("debug", ("api",))] == ["... lost", "w", "-- mark 06 "]


def test_copies_go_when_the_service_tells_its_lines_itself() -> None:
    book = Logbook()
    copies = [Entry(2, "info", "docker", "lost?", "copy"), Entry(5, "info", "docker", "again", "copy")]
    book.add([line(1, "served"), *copies, Entry(6, "warning", "docker", "die exitCode=137")], 0.0)
    book.forget_copies("docker", since=4)
    assert texts(book) == ["served", "lost?", "die exitCode=137"]


def test_a_line_cannot_move_the_cursor() -> None:
    book = Logbook()
    book.add([line(1, "a\x1b[2Jb\r\nc\td\u202ee")], 0.0)
    assert texts(book) == ["a?[2Jb? c    d?e"]


@pytest.mark.parametrize("wanted,found", [("swap", [0, 2]), ("SWAP 7", [2]), ("", []), ("none", [])])
def test_finding(wanted: str, found: list[int]) -> None:
    assert matches([line(1, "Swap begins"), line(2, "drain"), line(3, "swap 7")], wanted) == found
