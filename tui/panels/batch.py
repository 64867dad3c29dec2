"""The batch jobs in lines. Not here yet: any job, since the service has none (4 Batch says what to use instead)."""

from tui.looks import Looks
from tui.panels.picture import Part, Picture, drawn
from tui.snap import Snap


def batch(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Says that there are none; a service that reports some is newer than this program."""
    lines: list[list[Part]] = [[("no batch jobs", "dim")]]
    if snap.has("batch"):
        lines = [[("! the service reports batch jobs, which this program is too old to show", "warning")]]
    return drawn(lines, looks, width, height)
