"""Every screen, fed with what only a stranger could send: missing keys, other types, huge and hostile values."""

import copy
import random
from typing import Any

from tests.tui.fake import STATE
from tests.tui.frames import frame, see
from tui.keymap import MODES
from tui.pace import Pace
from tui.snap import Facts, Link, Snap

STRANGE: list[Any] = [None, True, -1, 0, 10**30, 1e308, -0.0, float("nan"), "", "x" * 5000, "\x1b[31m\x07\r\n",
                      "[bold]", "é漢👩‍👩‍👧", [], {}, [1, "a", None, {}], {"a": {"b": []}}, [[[]]],
                      [{}] * 300]  # fmt: skip


def spoilt(rng: random.Random) -> dict[str, Any]:
    """The document with a handful of places changed, removed or added."""
    document = copy.deepcopy(STATE)
    for _ in range(rng.randint(1, 8)):
        here: Any = document
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(here[key], dict | list) and here[key] and rng.random() < 0.7:
                here = here[key]
                continue
            if isinstance(here, dict) and rng.random() < 0.3:
                del here[key]
            else:
                here[key] = rng.choice(STRANGE)
            break
    return document


async def test_no_screen_falls_over_whatever_the_service_says(window) -> None:
    rng = random.Random(3)
    async with window(100, 30, pace=Pace(60.0)) as pilot:
        await see(pilot, "[READY]")
        for mode in (*MODES, "swap"):
            await pilot.app.switch_mode(mode)
            await pilot.pause()
            for i in range(40):
                document = spoilt(rng)
                link = Link(url="http://x", is_up=i % 7 > 0, at=1.0, attempt=1)
                pilot.app._hear(Snap(Facts(document), link, (), 9.0))
                assert not pilot.app.faults, (mode, [f.words for f in pilot.app.faults], document)
            await pilot.pause()
            text = frame(pilot.app)
            assert "\x1b" not in text and len(text.split("\n")) == 30
