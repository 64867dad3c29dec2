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
    """Events in their order: those that were followed, else the few in the state document."""
    return list(snap.events) or snap.rows("events")


def event_line(event: Facts) -> list[Part]:
    word, meaning = LEVELS.get(event.text("level").lower(), ("-", ""))
    said = f" {event.text('kind', '-'):8} {event.text('text', '-')}"
    return [f"{clock(event.num('time')):8}  ", (f"{word:5}", meaning), said]
