"""How one log line looks: time, level, source, text, the words that were found. Not here: which lines (logbook.py)."""

from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from tui.logbook import Entry
from tui.looks import Looks
from tui.panels.picture import Part, cut
from tui.units import UNKNOWN, clock

TIMES = ("time", "date", "none")
LEVELS = {
    "debug": ("DEBUG", "D", "dim"), "info": ("INFO", "I", ""), "warning": ("WARN", "W", "warning"),
    "error": ("ERROR", "E", "bad"),
}  # fmt: skip
SHORT = {
    "engine": "eng", "supervisor": "sup", "swap": "swp", "api": "api", "server": "srv", "event": "evt",
    "docker": "dkr", "kernel": "krn",
}  # fmt: skip
WIDE = 100


class Form(NamedTuple):
    """How lines are drawn: `times` is one of TIMES; `wanted` are words to show wherever they stand."""

    width: int
    times: str = "time"
    wraps: bool = False
    wanted: str = ""

    @property
    def is_wide(self) -> bool:
        return self.width >= WIDE


def when(moment: float, form: Form) -> str:
    """The time in front of a line, with its blank."""
    if form.times == "none":
        return ""
    pattern = "%Y-%m-%d %H:%M:%S" if form.times == "date" else "%H:%M:%S"
    words = clock(moment, pattern)
    if words == UNKNOWN:
        return f"{UNKNOWN} "
    return f"{words}.{int(moment * 1000) % 1000:03} " if form.is_wide else f"{words} "


def head(entry: Entry, form: Form) -> list[Part]:
    """What stands before the text."""
    word, letter, meaning = LEVELS.get(entry.level, LEVELS["info"])
    source = f" {entry.source[:10]:10}  " if form.is_wide else f" {SHORT.get(entry.source, entry.source[:3]):3}  "
    return [when(entry.time, form), (f"{word:5}" if form.is_wide else letter, meaning), source]


def head_cells(entry: Entry, form: Form) -> int:
    return sum(len(part if isinstance(part, str) else part[0]) for part in head(entry, form))


def height(entry: Entry, form: Form) -> int:
    """How many rows the line takes."""
    if not form.wraps or entry.kind in ("gap", "mark"):
        return 1
    return len(_chunks(entry, form))


def _chunks(entry: Entry, form: Form) -> list[str]:
    room, text = max(form.width - 1 - head_cells(entry, form), 8), entry.text
    if text.isascii():  # one cell each: 5,000 lines of 2,000 letters in 0.1 s, not in 3 s
        return [text[i : i + room] for i in range(0, len(text), room)] or [""]
    return chop_cells(text, room) or [""]


def row(entry: Entry, index: int, form: Form, looks: Looks, is_here: bool = False) -> Text:
    """Row `index` of the line; the cursor's line has a sign before it."""
    sign = ">" if is_here else " "
    if entry.kind == "mark":
        rule = "-" * max(form.width - 2 - cell_len(entry.text), 0)
        return cut(looks.line(sign, (entry.text + rule, "strong")), form.width, looks.more)
    if entry.kind == "gap":
        return cut(looks.line(sign, (entry.text, "warning")), form.width, looks.more)
    text = entry.text
    if form.wraps:
        chunks = _chunks(entry, form)
        text = chunks[index] if index < len(chunks) else ""
    first: list[Part] = head(entry, form) if index == 0 else [" " * head_cells(entry, form)]
    line = looks.line(sign, *first, *_found(text, form.wanted))
    line = cut(line, form.width, looks.more)
    if is_here:
        line.pad_right(form.width - line.cell_len)
        line.stylize(looks.style("cursor"))
    return line


def _found(text: str, wanted: str) -> list[Part]:
    """The text with each place of the words in another style."""
    if not wanted:
        return [text]
    lower, wanted = text.lower(), wanted.lower()
    if len(lower) != len(text):  # a letter that grows in lower case: the places would not fit
        return [text]
    parts: list[Part] = []
    start = 0
    while (at := lower.find(wanted, start)) >= 0:
        parts += [text[start:at], (text[at : at + len(wanted)], "state-working")]
        start = at + len(wanted)
    return [*parts, text[start:]]
