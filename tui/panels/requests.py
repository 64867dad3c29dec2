"""The requests that run and wait as a table with a cursor. Not here: keys (screens/dash.py), cancelling (3 Queue).

A filter is words that must all occur, or `field:value` terms: state:waiting lane:batch model:qwen id:10a4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.text import Text

from tui.looks import Looks
from tui.panels.picture import Part, cut
from tui.snap import Facts, Snap
from tui.units import age, count
from tui.words import fit

SORTS = ("age", "state", "tokens", "lane")
STATES = {"decode": 0, "prefill": 1, "running": 2, "stopping": 3, "waiting": 4}
MEANINGS = {"decode": "good", "prefill": "working", "stopping": "warning"}
PREFIXES = ("chatcmpl-", "cmpl-")
ID_CELLS = 10


@dataclass(frozen=True)
class Row:
    """One request as the table shows it; None is not known."""

    id: str
    state: str
    lane: str
    model: str
    n_prompt: float | None
    n_read: float | None
    n_generated: float | None
    n_most: float | None
    tok_s: float | None
    ttft_s: float | None
    age_s: float | None
    eta_s: float | None

    def has(self, term: str) -> bool:
        """Whether a term of a filter fits."""
        field, colon, value = term.partition(":")
        fields = {"id": self.id, "state": self.state, "lane": self.lane, "model": self.model}
        if colon and field in fields:
            return value in fields[field].lower()
        return any(term in text.lower() for text in fields.values())


def rows(snap: Snap) -> list[Row]:
    """Running ones first, in the service's order, then the waiting ones by their place; each id once."""
    found: dict[str, Row] = {}
    for facts in snap.rows("running"):
        row = _row(facts, facts.text("phase") if facts.text("state") == "running" else facts.text("state"))
        found.setdefault(row.id, row)
    for facts in snap.rows("waiting"):
        row = _row(facts, "waiting")
        found.setdefault(row.id, row)
    return list(found.values())


def _row(facts: Facts, state: str) -> Row:
    waits = state == "waiting"
    spent = [facts.num(path) for path in (("waited_ms",) if waits else ("queue_ms", "running_ms"))]
    known = [ms for ms in spent if ms is not None]
    return Row(
        id=facts.text("id", "-"), state=state or "running",
        lane=facts.text("lane", "-"), model=facts.text("model", "-"),
        n_prompt=facts.num("n_prompt"), n_read=0.0 if waits else facts.num("n_prompt_done"),
        n_generated=0.0 if waits else facts.num("n_generated"), n_most=facts.num("max_tokens"),
        tok_s=facts.num("tok_s"), ttft_s=_seconds(facts.num("ttft_ms")),
        age_s=sum(known) / 1000 if known else None, eta_s=_seconds(facts.num("eta_ms")),
    )  # fmt: skip


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def chosen(found: Sequence[Row], sort: str = "age", wanted: str = "") -> list[Row]:
    """The rows that fit the filter, in the order asked for; equal ones stay in the service's order."""
    terms = wanted.lower().split()
    fit_rows = [row for row in found if all(row.has(term) for term in terms)]
    keys: dict[str, Callable[[Row], tuple[float | str, ...]]] = {
        "age": lambda row: (row.state == "waiting", -(row.age_s or 0)),
        "state": lambda row: (STATES.get(row.state, 9), -(row.age_s or 0)),
        "tokens": lambda row: (-(row.n_generated or 0), -(row.n_read or 0)),
        "lane": lambda row: (row.lane, STATES.get(row.state, 9)),
    }
    return sorted(fit_rows, key=keys.get(sort, keys["age"]))


class Column(NamedTuple):
    """`cells` wide; the text is put at its right end unless `is_left`."""

    title: str
    cells: int
    text: Callable[[Row, Looks], str]
    is_left: bool = False


def short_id(name: str) -> str:
    """`chatcmpl-1f0c22ad...-0` is `1f0c22ad`, its second choice `1f0c22ad-1`."""
    own = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), "")
    name = own or name
    stem, _, choice = own.rpartition("-")
    if not stem or not choice.isdigit() or len(choice) > 4:
        return name[:ID_CELLS]
    return stem[:8] if choice == "0" else f"{stem[: ID_CELLS - 1 - len(choice)]}-{choice}"


def _share(part: float | None, whole: float | None) -> str:
    return "-" if part is None or not whole else f"{100 * min(max(part / whole, 0.0), 1.0):.0f}%"


def _of(row: Row) -> str:
    most = "-" if row.n_most is None else f"{row.n_most:.0f}"
    return f"{'-' if row.n_generated is None else f'{row.n_generated:.0f}'}/{most}"


def _bar(part: float | None, whole: float | None, looks: Looks, cells: int) -> str:
    return looks.bar(part, whole, cells) if part is not None and whole else f"[{'':{cells - 2}}]"


def _read(row: Row, looks: Looks) -> str:
    return f"{_bar(row.n_read, row.n_prompt, looks, 12)} {_share(row.n_read, row.n_prompt):>4}"


def _generated(row: Row, looks: Looks) -> str:
    return f"{_bar(row.n_generated, row.n_most, looks, 12)} {_of(row):>9}"


def _generated_short(row: Row, looks: Looks) -> str:
    return f"{_bar(row.n_generated, row.n_most, looks, 8)} {_of(row):>9}"


def _first(row: Row, _looks: Looks) -> str:
    return f"{row.ttft_s:.2f}s" if row.ttft_s is not None and row.ttft_s < 10 else age(row.ttft_s)


def _speed(row: Row, _looks: Looks) -> str:
    return "-" if row.tok_s is None else f"{row.tok_s:.1f}"


ID = Column("ID", ID_CELLS, lambda row, _: short_id(row.id), True)
STATE = Column("STATE", 8, lambda row, _: row.state, True)
LANE = Column("LANE", 11, lambda row, _: row.lane, True)
PROMPT = Column("PROMPT", 6, lambda row, _: "-" if row.n_prompt is None else f"{row.n_prompt:.0f}")
SPEED = Column("TOK/S", 5, _speed)
TTFT = Column("TTFT", 6, _first)
AGE = Column("AGE", 6, lambda row, _: age(row.age_s))
ETA = Column("ETA", 6, lambda row, _: age(row.eta_s))
READ_BAR = Column("PREFILL", 17, _read, True)
READ = Column("PRE", 4, lambda row, _: _share(row.n_read, row.n_prompt))
MADE_BAR = Column("GENERATED", 22, _generated, True)
MADE_SHORT = Column("GENERATED", 18, _generated_short, True)
MADE = Column("GEN", 9, lambda row, _: _of(row))
WIDE = (ID, STATE, LANE, PROMPT, READ_BAR, MADE_BAR, SPEED, TTFT, AGE, ETA)
MIDDLE = (ID, STATE, PROMPT, READ, MADE_SHORT, SPEED, AGE, ETA)
SMALL = (ID, STATE, PROMPT, READ, MADE, SPEED, AGE)


def columns(width: int) -> tuple[Column, ...]:
    """The most columns that fit."""
    for choice in (WIDE, MIDDLE):
        if 2 + sum(column.cells + 1 for column in choice) <= width + 1:
            return choice
    return SMALL


def header(looks: Looks, width: int) -> Text:
    names = [f"{c.title:<{c.cells}}" if c.is_left else f"{c.title:>{c.cells}}" for c in columns(width)]
    return cut(looks.line("  ", (" ".join(names).rstrip(), "title")), width, looks.more)


def line(row: Row, is_here: bool, looks: Looks, width: int) -> Text:
    """One row; the cursor is a sign and a style, so that it is seen without colours."""
    cells = []
    for column in columns(width):
        text = column.text(row, looks)
        text = fit(text, column.cells, looks.more) if len(text) > column.cells or not text.isascii() else text
        cells.append(f"{text:<{column.cells}}" if column.is_left else f"{text:>{column.cells}}")
    words = fit(("> " if is_here else "  ") + " ".join(cells), width, looks.more)
    if is_here:
        return looks.line((words, "cursor"))
    start = 2 + ID_CELLS + 1
    parts: list[Part] = [words[:start], (words[start : start + 8], MEANINGS.get(row.state, "")), words[start + 8 :]]
    return looks.line(*parts)


def more(above: int, below: int, looks: Looks, width: int) -> Text:
    """What the last line says when there are more rows than lines."""
    words = [f"+{count(below)} more"] if below else []
    words += [f"{count(above)} above"] if above else []
    return cut(looks.line((f"  {'  '.join(words)}", "dim")), width, looks.more)


class View(NamedTuple):
    """What of the rows is seen: the cursor's row, the first row, and how many wait beyond the service's list."""

    here: str | None = None
    top: int = 0
    n_unlisted: int = 0


def table(found: Sequence[Row], view: View, looks: Looks, width: int, height: int) -> list[Text]:
    """Header, the rows from the view's top on, and what is left out, in at most `height` lines."""
    if height <= 0:
        return []
    here, top, n_unlisted = view
    room = height - 1
    shown = list(found[top : top + room])
    below = len(found) - top - len(shown) + n_unlisted
    if (below or top) and room > 1 and shown:
        shown = shown[: room - 1]
        below = len(found) - top - len(shown) + n_unlisted
    lines = [header(looks, width), *(line(row, row.id == here, looks, width) for row in shown)]
    if (below or top) and room > 1:
        lines.append(more(top, below, looks, width))
    return lines[:height]
