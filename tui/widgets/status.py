"""The first line of every screen: who serves what, in which state, how fast. Not here: where the values come from."""

import time

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget

from tui.looks import Looks
from tui.snap import Snap
from tui.units import clock
from tui.words import fit

WIDE = 100


def status_text(snap: Snap, looks: Looks, width: int, marks: list[str], now: str) -> Text:
    """The line, cut from the right in a fixed order: clock, kv, threads, ctx, model; profile and state stay.

    `marks` follow the state: RO, PAUSED, SLOW 5s, HOLD.
    """
    wide = width >= WIDE
    parts = {
        "host": f"COLIBRI {snap.text('host')}".rstrip() if wide else "",
        "profile": snap.profile,
        "model": snap.text("model.id"),
        "ctx": _ctx(snap, wide),
        "threads": _joined("t", snap.text("worker.threads")),
        "kv": _joined("kv " if wide else "", _kv(snap)),
        "queue": _queue(snap, wide),
        "speed": _speed(snap, wide),
        "clock": now if wide else now[:5],
    }
    if snap.state == "swapping":
        # The profile is still the old one and the worker already the new: their facts do not belong together.
        parts |= dict.fromkeys(("model", "ctx", "threads", "kv"), "")
    state = "".join(f"[{word}]" + " " * bool(word) for word in (snap.word, *marks)).rstrip()
    for cut in ("", "clock", "kv", "threads", "ctx", "model", "host", "speed", "queue"):
        parts.pop(cut, None)
        left, right = _sides(parts, wide)
        at_end = parts.get("clock", "")
        if cell_len(left + state + right) + len(at_end) + 2 * bool(at_end) <= width:
            break
    room = width - cell_len(state) - cell_len(right) - 1
    left = fit(left, room, looks.more) if cell_len(left) > room else left
    line = Text(no_wrap=True, end="")
    line.append(left)
    first = f"[{snap.word}]"
    line.append(first, style=looks.style(f"state-{snap.meaning}"))
    line.append(state[len(first) :], style=looks.style("strong"))
    line.append(right)
    line.append(" " * max(width - cell_len(line.plain) - cell_len(at_end) - 1, 0) + at_end)
    line.truncate(width, pad=True)
    return line


def _sides(parts: dict[str, str], wide: bool) -> tuple[str, str]:
    """What stands before the state and what after it; the narrow line packs three facts into one column."""
    before = [parts.get("host", ""), parts.get("profile", ""), parts.get("model", "")]
    facts = [parts.get(name, "") for name in ("ctx", "threads", "kv")]
    before += facts if wide else [" ".join(filter(None, facts))]
    after = [parts.get(name, "") for name in ("queue", "speed")]
    right = "".join((" | " if wide else " ") + part for part in after if part)
    return " " + "".join(f"{part} | " for part in before if part), right


def _ctx(snap: Snap, wide: bool) -> str:
    n = snap.whole("worker.n_ctx") or snap.whole("model.n_ctx")
    if not n:
        return ""
    return f"ctx {n}" if wide else f"{n // 1024}k" if n >= 1024 else str(n)


def _kv(snap: Snap) -> str:
    k, v = snap.text("worker.type_k"), snap.text("worker.type_v")
    return k if k == v else "/".join(filter(None, (k, v)))


def _queue(snap: Snap, wide: bool) -> str:
    if not snap.link.is_up:
        return "q ?" if wide else "q?"
    # The lane in which people wait; the others hold what nobody sits in front of.
    n = snap.whole("lanes.interactive.waiting")
    n = snap.whole("n_waiting") if n is None else n
    limit = snap.whole("lanes.interactive.limit")
    return f"q {n if n is not None else '?'}/{limit}" if wide and limit else f"q{n if n is not None else '?'}"


def _speed(snap: Snap, wide: bool) -> str:
    n = snap.num("speeds.now_per_second") if snap.link.is_up else None
    unit = " tok/s" if wide else "t/s"
    return f"{n:.1f}{unit}" if n is not None else "-"


def _joined(prefix: str, text: str) -> str:
    return prefix + text if text else ""


class StatusLine(Widget):
    """One line; `show` it each snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self._snap = Snap()
        self._marks: list[str] = []
        self._looks = Looks()
        self._text = Text()

    def show(self, snap: Snap, looks: Looks, marks: list[str]) -> None:
        self._snap, self._looks, self._marks = snap, looks, marks
        text = status_text(snap, looks, self.size.width, marks, clock(time.time()))
        if text != self._text or text.spans != self._text.spans:
            self._text = text
            self.refresh()

    def render(self) -> Text:
        if len(self._text) != self.size.width:
            self._text = status_text(self._snap, self._looks, self.size.width, self._marks, clock(time.time()))
        return self._text
