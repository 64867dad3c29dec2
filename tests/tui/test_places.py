"""The screens whose work comes later say what they will hold, what to use today, and what is known already."""

import pytest

from tests.tui.frames import frame, see, until
from tests.tui.test_keys import settings
from tui.dialogs.base import Ask

PLACES = {
    "queue": ["3 of 4 slots", "waiting   3", "interactive        3 of 16", "chatcmpl-10a7-0"],
    "batch": ["batch lane   0 waiting of 32"],
    "memory": ["2.33 GiB", "used 757.8 MiB", "private 3.00 GiB", "62.50 GiB", "page cache 18.10 GiB", "of 8.00 GiB"],
    "bench": ["16 of 32 cores", "212 tok/s", "23 tok/s"],
    "chat": ["/v1", "qwen3-4b-q4_k_m"],
}


@pytest.mark.parametrize("mode", PLACES)
async def test_a_place_is_not_blank_and_holds_the_facts_of_now(window, fake, mode: str) -> None:
    async with window(100, 30, config=settings(start_screen=mode)) as pilot:
        text = await see(pilot, "Later here:", "Today:", "not built yet", *PLACES[mode])
        assert fake.url in text or mode != "chat"
        fake.state["n_waiting"] = 7
        fake.state["memory"]["worker"]["rss_bytes"] = 77 << 30
        words = {"queue": "waiting   7", "memory": "77.00 GiB"}.get(mode, "Today")
        await until(pilot, lambda: words in frame(pilot.app))


async def test_a_place_without_a_service_says_that_it_knows_nothing(window, fake) -> None:
    await fake.stop()
    async with window(80, 24, config=settings(start_screen="memory")) as pilot:
        text = await see(pilot, "[NO LINK]", "Today:", "no answer from the service yet")
        assert "GiB" not in text


async def test_below_a_dialog_only_the_screen_that_is_seen_is_drawn(window) -> None:
    shown = []
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        for mode, title in (("memory", "- Memory"), ("queue", "- Queue")):
            await pilot.app.switch_mode(mode)
            await see(pilot, title)
            pilot.app.screen.show = lambda _snap, mode=mode: shown.append(mode)
        pilot.app.push_screen(Ask("Really?", ["It cannot be taken back."]))
        await see(pilot, "Really?")
        del shown[:]
        await until(pilot, lambda: len(shown) >= 3)
        assert set(shown) == {"queue"}
