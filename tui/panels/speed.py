"""How fast it answers, in lines: tokens a second, first token, served, slots, queue. Not here: single requests."""

from tui.looks import Looks
from tui.panels.picture import ROOMY, Part, Picture, drawn, mark
from tui.snap import Snap
from tui.units import age, count, millis

HISTORY_S = 60


def speed(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Six lines of a panel of its own."""
    old, roomy = mark(snap), width >= ROOMY
    cells, gap = (9, 3) if roomy else (8, 1)
    history = snap.numbers("speeds.history")[-HISTORY_S:]
    curve = looks.spark(history, min(max(width - cells - 12, 0), HISTORY_S)) if any(history) else ""
    p50, p95 = (millis(snap.num(f"ttft.{p}_ms")).replace(" ", " " * roomy) for p in ("p50", "p95"))
    lately: Part = (curve, "good") if curve else "idle" if _is_idle(snap) else ""
    lines: list[list[Part]] = [
        [f"{'decode':{cells}}{tok_s(decode(snap))}{old}  ", lately],
        [f"{'prefill':{cells}}{tok_s(snap.num('speeds.prompt_per_second'))}{old}"],
        [f"{'TTFT':{cells}}p50 {p50}{old}{' ' * gap}p95 {p95}{old}"],
        [f"{'served':{cells}}{count(snap.num('requests.finished'))} req  ", *errors(snap, roomy)],
        [f"{'slots':{cells}}", *slots(snap, looks), *(refused(snap) or [" busy"])],
        [f"{'queue':{cells}}", *queue(snap, gap)],
    ]
    return drawn(lines, looks, width, height, f"{len(history)} s" if curve else "")


def speed_line(snap: Snap, looks: Looks) -> list[Part]:
    """Speeds and first-token times on one line of 76 cells."""
    old = mark(snap)
    history = snap.numbers("speeds.history")
    curve = looks.spark(history, 12) if any(history) else f"{'idle' if _is_idle(snap) else '':12}"
    prefill = snap.num("speeds.prompt_per_second")
    p50, p95 = (millis(snap.num(f"ttft.{p}_ms")).replace(" ", "") for p in ("p50", "p95"))
    return [
        f"decode {tok_s(decode(snap))}{old} ", (curve, "good"),
        f"  prefill {'-' if prefill is None else f'{prefill:.0f}'}{old}   TTFT p50 {p50}{old} p95 {p95}{old}",
    ]  # fmt: skip


def work_line(snap: Snap, looks: Looks) -> list[Part]:
    """Slots, queue and counts on one line of 76 cells."""
    failed = snap.num("requests.failed")
    served = f"   served {count(snap.num('requests.finished'))}  "
    err: Part = (f"err {count(failed)}", "warning") if failed else f"err {count(failed)}"
    return ["slots ", *slots(snap, looks), "   queue ", *queue(snap, 1), served, err, *refused(snap)]


def decode(snap: Snap) -> float | None:
    """Tokens a second now while something runs, else as last measured: 0 would say that the engine is slow."""
    now, measured = snap.num("speeds.now_per_second"), snap.num("speeds.predicted_per_second")
    return now if now is not None and not _is_idle(snap) else measured if measured is not None else now


def tok_s(value: float | None) -> str:
    """Ten cells: ` 23.4 tok/s`, `  212 tok/s`."""
    number = "-" if value is None else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{number:>4} tok/s"


def slots(snap: Snap, looks: Looks) -> list[Part]:
    busy, total = snap.num("slots.busy"), snap.num("slots.total")
    cells = int(min(max(total or 4, 1), 12)) + 2
    return [looks.bar(busy, total, cells), f" {count(busy)}/{count(total)}{mark(snap)}"]


def queue(snap: Snap, gap: int) -> list[Part]:
    """How many wait and for how long; while a swap runs, how many of them it holds."""
    waited = [ms for row in snap.rows("waiting") if (ms := row.num("waited_ms")) is not None]
    oldest = f"{' ' * gap}oldest {age(max(waited) / 1000)}" if waited else ""
    held = snap.num("held.n")
    kept: list[Part] = [(f"  {count(held)} held", "working")] if held else []
    return [f"{count(snap.num('n_waiting'))}{mark(snap)} waiting", oldest, *kept]


def errors(snap: Snap, in_percent: bool) -> list[Part]:
    failed, finished = snap.num("requests.failed"), snap.num("requests.finished")
    text = f"errors {count(failed)}"
    if failed and finished is not None and failed + finished > 0:
        share = f" ({100 * failed / (failed + finished):.1f}%)" if in_percent else ""
        return [(f"{text}{share}", "warning")]
    return [text]


def refused(snap: Snap) -> list[Part]:
    n = snap.num("requests.refused")
    return [(f"  ! refused {count(n)}", "warning")] if n else []


def _is_idle(snap: Snap) -> bool:
    return snap.num("slots.busy") == 0
