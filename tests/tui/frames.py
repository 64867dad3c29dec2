"""A screen as text, and waiting for what it should show. The one place of tests that knows Textual's private name."""

import asyncio
import time
from collections.abc import Callable

from textual import events
from textual.app import App
from textual.keys import _character_to_key
from textual.pilot import Pilot

LIMIT_S = 30.0  # a guard against hanging: busy neighbours make a repaint ten times slower
SIGNS = {"space": " ", "colon": ":", "slash": "/", "question_mark": "?", "enter": "\r", "escape": "\x1b", "tab": "\t"}


def frame(app: App) -> str:
    """The text on the screen, line by line, as wide as the window."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text[: app.size.width] for strip in strips)


async def until(pilot: Pilot, holds: Callable[[], object], timeout_s: float = LIMIT_S, what: str = "") -> None:
    """Wait for a condition, letting the program work; AssertionError with the last frame."""
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            what = what or "the condition"
            raise AssertionError(f"{what} did not come about within {timeout_s} s:\n{frame(pilot.app)}")
        await asyncio.sleep(0.02)


async def see(pilot: Pilot, *words: str, timeout_s: float = LIMIT_S) -> str:
    """Wait until all the words are on the screen; gives the frame."""
    text = ""

    def are_there() -> bool:
        nonlocal text
        text = frame(pilot.app)
        return all(w in text for w in words)

    await until(pilot, are_there, timeout_s, f"{words} on the screen")
    return text


async def tap(pilot: Pilot, *keys: str) -> None:
    """Keys as a terminal sends them, all at once; then wait for what they do. Pilot.press rests 50 ms after each.

    Textual puts letters into a text at once and lets every other key bubble up first: within one call letters win.
    """
    for key in keys:
        name = _character_to_key(key) if len(key) == 1 else key
        pilot.app.post_message(events.Key(name, SIGNS.get(name, key if len(key) == 1 else None)))
    await asyncio.sleep(0)
