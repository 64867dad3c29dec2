"""The stages of a swap as a strip of three lines: names, signs, times. Not here: why a stage failed (report.py).

        DRAIN --- STOP --- START --- WARM --- CHECK    ROLLBACK --- READY
         ok        ok       ok       FAIL       -          ok          ok
        18.2 s    0.6 s    1.9 s    180 s                4.3 s
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.panels.pieces import Line, Piece
from tui.snap import Facts
from tui.units import seconds

# What stands under a stage's name, and what it means (looks.py gives the meaning its colour).
SIGNS = {
    "waiting": ("-", "dim"),
    "running": (">>", "working"),
    "ok": ("ok", "good"),
    "failed": ("FAIL", "bad"),
    "skipped": ("-", "dim"),
}
STAGES = ("drain", "stop", "start", "warm", "check")
# How a swap ends: the word of the last column, its sign, its meaning.
ENDS = {
    "ready": ("READY", "ok", "good"),
    "applied": ("APPLIED", "ok", "good"),
    "unchanged": ("READY", "ok", "good"),
    "aborted": ("READY", "ok", "good"),
    "refused": ("READY", "ok", "good"),
    "rolled_back": ("READY", "ok", "good"),
    "fallback": ("DEGRADED", "!", "warning"),
    "crashed": ("CRASHED", "x", "bad"),
    "cut": ("CUT", "!", "warning"),
}


@dataclass(frozen=True)
class Cell:
    """One column of the strip; `is_apart` leaves a gap instead of a dash before it."""

    name: str
    sign: str
    meaning: str
    time: str
    is_apart: bool = False

    @property
    def width(self) -> int:
        return max(len(self.name), len(self.sign), len(self.time))


def cells(swap: Facts, now: float | None = None) -> list[Cell]:
    """The strip's columns: the five stages (the plan only where it failed), what rescued it, how it ended."""
    given = {stage.text("name"): stage for stage in swap.rows("stages")}
    found = []
    if "plan" in given and given["plan"].text("state") == "failed":
        found.append(_stage("plan", given["plan"], now))
    found += [_stage(name, given.get(name, Facts()), now) for name in STAGES]
    if swap.text("reason.code") == "aborted":
        found = [replace(cell, sign="ABORT", meaning="warning") if cell.sign == "FAIL" else cell for cell in found]
    for number, rescue in enumerate(swap.rows("rescue")):
        sign, meaning = SIGNS.get(rescue.text("state"), ("?", "warning"))
        found.append(Cell(rescue.text("why", "?").upper(), sign, meaning, _time(rescue, now), is_apart=number == 0))
    name, sign, meaning = ENDS.get(swap.text("state"), ("READY", "-", "dim"))
    return [*found, Cell(name, sign, meaning, "")]


def _stage(name: str, stage: Facts, now: float | None) -> Cell:
    sign, meaning = SIGNS.get(stage.text("state", "waiting"), ("?", "warning"))
    return Cell(name.upper(), sign, meaning, _time(stage, now))


def _time(stage: Facts, now: float | None) -> str:
    if stage.text("state", "waiting") in ("waiting", "skipped"):
        return ""
    took, started = stage.num("took_s"), stage.num("started")
    if took is None and now is not None and started is not None:
        took = max(0.0, now - started)
    return "" if took is None else brief(took)


def brief(took: float) -> str:
    """A stage's time in at most six cells up to a quarter of an hour: `18.2 s`, `180 s`."""
    return f"{took:.1f} s" if took < 99.95 else f"{took:.0f} s" if took < 1000 else seconds(took)


def strip(columns: Sequence[Cell], width: int) -> list[Line]:
    """Three lines, sign and time centred under the name; what does not fit stands on three lines more."""
    gap = _gap(columns, width)
    if gap >= 1:
        return _lines(columns, min(gap, 6))
    # A narrow window shows the stages first and below them what came to the rescue.
    cut = next((i for i, cell in enumerate(columns) if cell.is_apart), len(columns) - 1)
    groups = [columns[:cut], columns[cut:]]
    gap = min(_gap(group, width) for group in groups)
    return [line for group in groups for line in _lines(group, max(1, min(gap, 6)))]


def _gap(columns: Sequence[Cell], width: int) -> int:
    """Dashes that fit between two columns."""
    return (width - sum(cell.width for cell in columns)) // max(1, len(columns) - 1) - 2


def _lines(columns: Sequence[Cell], gap: int) -> list[Line]:
    names: list[Piece] = []
    signs: list[Piece] = []
    times: list[Piece] = []
    for index, cell in enumerate(columns):
        if index:
            space = " " * (gap + 2)
            names.append((space if cell.is_apart else f" {'-' * gap} ", "dim"))
            signs.append((space, ""))
            times.append((space, ""))
        names.append((cell.name.center(cell.width), "working" if cell.sign == ">>" else ""))
        signs.append((cell.sign.center(cell.width), cell.meaning))
        times.append((cell.time.center(cell.width), ""))
    return [names, signs, times]
