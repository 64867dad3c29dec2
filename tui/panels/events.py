"""What happened lately, one line each, the newest first. Not here: log lines (screens/logs.py)."""

from tui.looks import Looks
from tui.panels.picture import Part, Picture, drawn
from tui.snap import Facts, Snap
from tui.units import clock

LEVELS = {"debug": ("DEBUG", "dim"), "info": ("INFO", ""), "warning": ("WARN", "warning"), "error": ("ERROR", "bad")}


def events(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """As many of the newest events as there are lines."""
    newest = list(reversed(recent(snap)))[: max(height, 0)]
    lines = [event_line(event) for event in newest] or [[("nothing has happened yet", "dim")]]
    return drawn(lines, looks, width, height, "7 Logs for all")


def recent(snap: Snap) -> list[Facts]:
    """Events by time, each once: those that were followed, else the few in the state document."""
    found = {event.text("id") or str(number): event for number, event in enumerate(snap.events or snap.rows("events"))}
    return sorted(found.values(), key=lambda event: event.num("time") or 0.0)


def event_line(event: Facts) -> list[Part]:
    word, meaning = LEVELS.get(event.text("level").lower(), ("-", ""))
    said = f" {event.text('kind', '-'):8} {event.text('text', '-')}"
    return [f"{clock(event.num('time')):8}  ", (f"{word:5}", meaning), said]
