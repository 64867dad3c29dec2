"""The program under fourteen terminals, and what its bytes hold: colours, signs, modes. Not here: pictures (tests/tui).

All fourteen run at once, each on a pty of its own, walk through every screen and quit; the tests look at what was
written. The list is the field's: what SSH, containers, consoles and minimal hosts really set.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.terminal import escapes
from tests.terminal.conftest import Served
from tests.terminal.program import Program

REFUSED = 64
WALK = "2345678?1"
TERMS: dict[str, dict[str, str]] = {
    "256 colours, no COLORTERM": {"TERM": "xterm-256color"},
    "truecolor": {"COLORTERM": "truecolor"},
    "vt100": {"TERM": "vt100"},
    "linux console": {"TERM": "linux"},
    "dumb": {"TERM": "dumb"},
    "TERM unset": {"TERM": ""},
    "TERM unknown": {"TERM": "xterm-ghostty"},
    "tmux": {"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"},
    "screen": {"TERM": "screen"},
    "LANG=C": {"LANG": "C", "LC_ALL": "C"},
    "LC_ALL=POSIX": {"LANG": "", "LC_ALL": "POSIX"},
    "LANG unset": {"LANG": ""},
    "ascii Python": {"LANG": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    "NO_COLOR": {"NO_COLOR": "1"},
}
REFUSING = ("dumb", "TERM unset")
PLAIN = ("linux console", "LANG=C", "LC_ALL=POSIX", "LANG unset", "ascii Python")


class Seen(NamedTuple):
    """One program's whole life: what it wrote, its exit code, what it left changed."""

    raw: bytes
    code: int
    left: list[str]

    @property
    def text(self) -> str:
        return escapes.text(self.raw)


def lived(served: Served, name: str) -> Seen:
    """Open, look at every screen, quit."""
    with Program(served.argv(), served.at(**TERMS[name]), columns=120 if name == "truecolor" else 80,
                 rows=40 if name == "truecolor" else 24) as program:  # fmt: skip
        if name not in REFUSING:
            program.wait(r"\[READY\]", 30)
            for key in WALK:
                program.keys(key)
                program.quiet(0.15, 10)
            program.keys("q")
        code = program.ended(30)
        return Seen(program.raw, code, program.modes())


@pytest.fixture(scope="module")
def seen(served: Served) -> Iterator[dict[str, Seen]]:
    served.swap("quick-verify")
    with ThreadPoolExecutor(len(TERMS)) as pool:
        yield dict(zip(TERMS, pool.map(lambda name: lived(served, name), TERMS), strict=True))


@pytest.mark.parametrize("name", TERMS)
def test_it_opens_and_quits_or_says_in_one_line_why_not(seen: dict[str, Seen], name: str) -> None:
    there = seen[name]
    if name in REFUSING:
        assert (there.code, there.raw.count(b"\n")) == (REFUSED, 1) and "colibri status" in there.text
        assert b"\x1b" not in there.raw
    else:
        assert there.code == 0
    assert there.left == []
    for wrong in ("Traceback", "UnicodeEncodeError", "MarkupError", "Error:"):
        assert wrong not in there.text


def test_without_colour_there_is_none_and_the_cursor_is_reverse(seen: dict[str, Seen]) -> None:
    assert escapes.colours(seen["NO_COLOR"].raw) == set()
    assert {1, 7} <= escapes.sgr(seen["NO_COLOR"].raw)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_terminal_gets_plain_signs_only(seen: dict[str, Seen], name: str) -> None:
    """After the escapes are taken out every byte is a line end or one of ASCII's signs."""
    odd = set(escapes.ESCAPE.sub(b"", seen[name].raw)) - {0x0A, 0x0D, *range(0x20, 0x7F)}
    assert odd == set()


def test_colours_are_as_many_as_the_terminal_has(seen: dict[str, Seen]) -> None:
    """24 bits only where COLORTERM says so; a terminal of 16 colours gets neither those nor 256."""
    assert b"38;2;" in seen["truecolor"].raw
    assert b"38;2;" not in seen["256 colours, no COLORTERM"].raw and b"38;5;" in seen["256 colours, no COLORTERM"].raw
    for name in ("vt100", "screen", "linux console"):
        assert {38, 48} & escapes.colours(seen[name].raw) == set(), name


def test_a_flag_asks_for_plain_signs_where_better_ones_would_do(served: Served) -> None:
    with Program(served.argv("--ascii", "--mono"), served.at(COLORTERM="truecolor")) as program:
        program.wait(r"\[READY\]")
        program.keys("2")
        program.wait("quick-verify")
        program.keys("q")
        assert program.ended() == 0
        assert max(escapes.ESCAPE.sub(b"", program.raw)) < 0x7F and escapes.colours(program.raw) == set()


@pytest.mark.parametrize("closed", ["in", "out"])
def test_a_pipe_is_refused_in_one_line(served: Served, closed: str) -> None:
    """Output into a pipe, or input from one; the other side stays a terminal."""
    script = f"{' '.join(served.argv())} {'</dev/null' if closed == 'in' else '| cat'}; exit ${{PIPESTATUS[0]}}"
    with Program(["bash", "-c", script], served.at()) as shell:
        assert shell.ended() == REFUSED
        assert shell.raw.count(b"\n") == 1 and "colibri status" in shell.text() and b"\x1b" not in shell.raw


def test_nothing_is_written_while_it_is_paused_and_idle(served: Served) -> None:
    with Program(served.argv(), served.at()) as program:
        program.wait(r"\[READY\]")
        program.keys("p")
        program.wait("PAUSED")
        program.quiet(2.5, 15)
        program.keys("p")
        at = len(program.raw)
        program.wait(r"READY|\d", since=at)
