"""Keys: what each does, that typing is typing, that what is off is shown in ( ), and that nothing piles up."""

import gc
import time

import pytest
from textual.widget import Widget
from textual.widgets import Input

from tests.tui.frames import frame, see, tap, until
from tui.config import Config
from tui.keymap import KEYS, MODES
from tui.widgets.filter import FilterLine


def settings(**values: object) -> Config:
    base = Config()
    return Config({**base.values, **values}, keymap=values.pop("keymap", {}))  # type: ignore[arg-type]


def focused(pilot):
    """The panel that holds the focus."""
    return next((p for p in pilot.app.screen.panels() if p.has_focus or p.has_focus_within), None)


async def test_every_screen_has_a_digit_and_a_function_key(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        for i, mode in enumerate(MODES, 1):
            for each in KEYS[f"nav.{i}"].split(","):
                await tap(pilot, each)
                await until(pilot, lambda m=mode: pilot.app.current_mode == m, what=each)
                await see(pilot, f"[{i} ")


async def test_a05_letters_go_into_a_text_that_is_typed_and_function_keys_still_switch(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "slash", *"1:?/qs")
        await until(pilot, lambda: pilot.app.screen.query_one(FilterLine).text == "1:?/qs")
        assert pilot.app.current_mode == "dash" and not pilot.app.screen.is_modal
        await tap(pilot, "f3")
        await until(pilot, lambda: pilot.app.current_mode == "queue")


async def test_letters_right_behind_a_colon_or_a_slash_reach_the_line_that_opens(window) -> None:
    """A slow link delivers keys in one piece: they are all in the queue before the line is there."""
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, *":swapx")
        await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.screen.query(Input))
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "swapx")
        await tap(pilot, "escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        await tap(pilot, *"/qps")
        await until(pilot, lambda: pilot.app.screen.query_one(FilterLine).text == "qps")
        assert not pilot.app.pace.is_paused


async def test_escape_clears_the_filter_then_the_zoom_and_never_quits(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        screen = pilot.app.screen
        line = screen.query_one(FilterLine)
        await tap(pilot, "z")
        await until(pilot, lambda: screen._is_zoom_chosen)
        await tap(pilot, "slash", "x")
        await until(pilot, lambda: line.text == "x")
        await tap(pilot, "enter")
        await until(pilot, lambda: not pilot.app.is_typing)
        await tap(pilot, "escape")
        await until(pilot, lambda: line.text == "")
        assert screen._is_zoom_chosen
        await tap(pilot, "escape")
        await until(pilot, lambda: not screen._is_zoom_chosen)
        await tap(pilot, "escape", "escape", "3")
        await see(pilot, "[3 Queue]")


async def test_zoom_shows_one_panel_and_tab_takes_the_next_one(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]", "- Engine", "- Memory")
        await tap(pilot, "z")
        await until(pilot, lambda: len([p for p in pilot.app.screen.panels() if p.is_on_screen and p.size.width]) == 1)
        first = focused(pilot)
        await until(pilot, lambda: first.outer_size == (120, 33))
        await tap(pilot, "tab")
        await until(pilot, lambda: focused(pilot) is not first)
        await until(pilot, lambda: focused(pilot).outer_size == (120, 33))
        await tap(pilot, "z")
        await see(pilot, "- Engine", "- Memory")


@pytest.mark.parametrize("size", [(79, 30), (120, 23), (60, 16)])
async def test_a_small_window_shows_one_panel_at_a_time(window, size) -> None:
    async with window(*size) as pilot:
        await see(pilot, "[READY]")

        def shown() -> list[str | None]:
            return [p.id for p in pilot.app.screen.panels() if p.display and not p.has_class("-hidden-by-zoom")]

        seen = []
        for _ in range(len(pilot.app.screen.panels())):
            await until(pilot, lambda before=seen[-1:]: len(shown()) == 1 and shown() != before)
            seen += shown()
            await tap(pilot, "tab")
        assert len(set(seen)) == len(seen) >= 5
        await pilot.resize_terminal(120, 36)
        await see(pilot, "- Engine", "- Memory")


async def test_below_60x16_state_queue_and_speed_are_left(window) -> None:
    async with window(48, 12) as pilot:
        text = await see(pilot, "window is 48x12, 80x24 shows more", "[READY]", "queue 3", "23.4 tok/s")
        assert len(text.split("\n")) == 12


async def test_a_read_only_view_shows_changing_keys_in_brackets_and_sends_nothing(window, fake) -> None:
    async with window(120, 36, config=settings(readonly=True)) as pilot:
        await see(pilot, "[READY] [RO]", "(s Swap)")
        await tap(pilot, "s", *":swap x", "enter")
        await see(pilot, "swap: not now, this is a read-only view")
        assert {asked.method for asked in fake.asked} == {"GET"}


async def test_rates_are_stepped_and_told(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.use_rate(1.0)
        await tap(pilot, "plus")
        await see(pilot, "asking every 2 s")
        await tap(pilot, "minus", "minus")
        await until(pilot, lambda: pilot.app.pace.period_s == 0.5)


async def test_themes_and_looks_change_while_running(window) -> None:
    from tui.looks import Looks

    async with window(120, 36, looks=Looks()) as pilot:
        await see(pilot, "╭")
        await tap(pilot, "T")
        await until(pilot, lambda: pilot.app.theme == "colibri-safe-light" and not pilot.app.looks.dark)
        await tap(pilot, "T")
        await until(pilot, lambda: pilot.app.theme == "colibri-safe" and pilot.app.looks.dark)
        pilot.app.use_looks(ascii=True)
        await until(pilot, lambda: frame(pilot.app).isascii())
        pilot.app.use_looks(mono=True)
        assert pilot.app.theme == "colibri-16" and pilot.app.no_color
        pilot.app.use_looks(ascii=False, mono=False)
        await see(pilot, "╭")
        assert "did you mean 'nord'" in pilot.app.use_theme("nrd")


async def test_in_mono_no_strip_holds_a_colour(window) -> None:
    from tui.looks import Looks

    async with window(120, 36, looks=Looks("mono")) as pilot:
        await see(pilot, "[READY]")
        for mode in MODES:
            await pilot.app.switch_mode(mode)
            await see(pilot, "[READY]")
            for strip in pilot.app.screen._compositor.render_strips():
                for segment in strip:
                    style = segment.style
                    assert style is None or not style.color or style.color.is_default, (mode, segment)
                    assert style is None or not style.bgcolor or style.bgcolor.is_default, (mode, segment)


async def test_a_users_keymap_takes_the_place_of_a_key(window) -> None:
    async with window(120, 36, config=settings(keymap={"app.pause": "f10"})) as pilot:
        await see(pilot, "[READY]", "F10 Pause")
        await tap(pilot, "p", "f10")
        await see(pilot, "[PAUSED]")
        await tap(pilot, "p", "3")
        await see(pilot, "[3 Queue]", "[PAUSED]")


async def test_what_is_wrong_with_the_settings_is_a_banner_and_no_end(window) -> None:
    bad = Config(problems=("/etc/colibri/tui.yaml line 3: 'thme' is no setting", "another"))
    async with window(120, 36, config=bad) as pilot:
        await see(pilot, "[READY]", "settings: /etc/colibri/tui.yaml line 3: 'thme' is no setting", "and 1 more")


async def test_q_leaves_and_asks_only_with_unsaved_text(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        screen = pilot.app.screen
        screen.unsaved = lambda: "long-doc.yaml"
        await tap(pilot, "q")
        await see(pilot, "long-doc.yaml has changes that are not saved", "[ Cancel ]")
        await tap(pilot, "enter")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        screen.unsaved = lambda: ""
        await tap(pilot, "q")
        await until(pilot, lambda: pilot.app._exit)


async def test_ctrl_q_leaves_at_once_and_rescues(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        rescued = []
        pilot.app.screen.rescue = lambda: rescued.append(1)
        pilot.app.screen.unsaved = lambda: "long-doc.yaml"
        await tap(pilot, "slash", "x", "ctrl+q")
        await until(pilot, lambda: pilot.app._exit)
        assert rescued


async def test_without_a_key_for_long_it_counts_down_stays_for_a_key_and_leaves(window) -> None:
    async with window(120, 36, config=settings(idle_exit_min=10)) as pilot:
        await see(pilot, "[READY]")
        pilot.app._last_key = time.monotonic() - 10 * 60 + 30
        pilot.app._idle()
        await see(pilot, "leaving in 30 s, any key stays")
        await tap(pilot, "down")
        await until(pilot, lambda: time.monotonic() - pilot.app._last_key < 60)
        pilot.app._idle()
        assert "leaving" not in await see(pilot, "q Quit")
        pilot.app._last_key = time.monotonic() - 10 * 60 - 1
        pilot.app._idle()
        await until(pilot, lambda: pilot.app._exit)


async def test_nothing_piles_up_over_hundreds_of_refreshes_screens_and_dialogs(window, fake) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        for mode in MODES:
            await pilot.app.switch_mode(mode)

        def count() -> int:
            gc.collect()
            return sum(isinstance(each, Widget) for each in gc.get_objects())

        async def live_a_while() -> None:
            for mode in MODES[:4]:
                await pilot.app.switch_mode(mode)
                pilot.app.screen.refresh_bindings()
            await tap(pilot, "colon")
            await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.is_typing)
            await tap(pilot, "escape")
            await until(pilot, lambda: not pilot.app.screen.is_modal)

        for _ in range(3):
            await live_a_while()
        before = count()
        for _ in range(5):
            await live_a_while()
        for _ in range(60):
            pilot.app.screen.refresh_bindings()
        await until(pilot, lambda: count() <= before, what=f"no more than {before} widgets")
