"""What is wrong, in words for a banner: link, version, key, crash. Not here: how a banner is drawn."""

from dataclasses import dataclass

from tui.looks import SIGNS
from tui.snap import Snap
from tui.units import clock, elapsed

BACK_S = 3.0


@dataclass(frozen=True)
class Problem:
    """A title, some lines, words for the right of the title; `meaning` is good, working, warning or bad."""

    title: str
    lines: tuple[str, ...] = ()
    right: str = ""
    meaning: str = "bad"

    @property
    def mark(self) -> str:
        """The sign before the title."""
        return "!" if self.meaning == "bad" else SIGNS.get(self.meaning, "!")


def problems(snap: Snap) -> list[Problem]:
    """Those of the link first, since all else is old while there is none."""
    found = [_link(snap), _version(snap), _crashed(snap), _degraded(snap)]
    return [each for each in found if each is not None]


def _link(snap: Snap) -> Problem | None:
    link = snap.link
    if link.refused:
        return Problem("The service does not let this program in", (link.refused,), _retry(snap))
    if not link.is_up and link.attempt:
        since = ""
        if link.lost_at is not None:
            since = f"  since {clock(link.lost_epoch)} ({elapsed(snap.now - link.lost_at)})"
        return Problem(f"No link to the service{since}", (f"{link.url}: {link.error}",), _retry(snap))
    if link.is_up and link.back_at is not None and snap.now - link.back_at < BACK_S:
        return Problem(f"link is back after {elapsed(link.was_down_s)}", (link.url,), meaning="good")
    return None


def _retry(snap: Snap) -> str:
    link = snap.link
    if link.retry_at is None:
        return ""
    wait = link.retry_at - snap.now
    return f"retry {link.attempt} in {wait:.0f} s" if wait >= 0.5 else f"retry {link.attempt} now"


def _version(snap: Snap) -> Problem | None:
    if not snap.link.is_up or not snap.api_fault:
        return None
    version = snap.text("version", "unknown")
    lines = (snap.api_fault, "Keys that change something are off; what is shown may have gaps.")
    return Problem(f"The service is of another version ({version})", lines, meaning="warning")


def _crashed(snap: Snap) -> Problem | None:
    if not snap.link.is_up or snap.state != "crashed":
        return None
    reason = snap.text("reason") or snap.text("error.message") or snap.text("error") or "it gave no reason"
    held = snap.whole("held.n") or 0
    kept = f"{held} held requests are kept. " if held else ""
    return Problem("The engine crashed", (reason, f"{kept}S starts it again, 7 shows the log."))


def _degraded(snap: Snap) -> Problem | None:
    if not snap.link.is_up or snap.state != "degraded":
        return None
    return Problem(f"Degraded: {snap.text('reason', 'the service gave no reason')}", meaning="warning")
