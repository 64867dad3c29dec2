"""The command line: screens and commands by name, the nearest name for a wrong one, completion."""

import pytest
from textual.widgets import Input

from tests.tui.frames import see, tap, until
from tui import commands
from tui.commands import COMMANDS, completions
from tui.keymap import MODES


async def type_in(pilot, line: str) -> None:
    await tap(pilot, "colon")
    await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.is_typing)
    await tap(pilot, *line, "enter")
    await until(pilot, lambda: not pilot.app.screen.is_modal or pilot.app.screen._fault)


async def test_every_screen_is_reached_by_its_name(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        for mode in MODES:
            await type_in(pilot, mode)
            await until(pilot, lambda m=mode: pilot.app.current_mode == m and not pilot.app.screen.is_modal)


async def test_an_unknown_word_gets_the_nearest_one_and_the_line_stays_to_be_mended(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        await type_in(pilot, "raet 2")
        await see(pilot, "there is no command 'raet'; did you mean 'rate'?", "raet 2")
        await until(pilot, lambda: pilot.app.is_typing)
        await tap(pilot, *["backspace"] * 6)
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "")
        await tap(pilot, *"rate 2", "enter")
        await until(pilot, lambda: pilot.app.pace.chosen_s == 2.0)
        assert not pilot.app.screen.is_modal


async def test_an_unfinished_word_with_one_meaning_is_that_word_and_tab_completes(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        await type_in(pilot, "prof")
        await until(pilot, lambda: pilot.app.current_mode == "profiles")
        await tap(pilot, "ctrl+p")
        await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.is_typing)
        await tap(pilot, *"que")
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "que")
        await tap(pilot, "tab")
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "queue ")
        await tap(pilot, "enter")
        await until(pilot, lambda: pilot.app.current_mode == "queue")
        await tap(pilot, *":m")
        await until(pilot, lambda: pilot.app.is_typing and pilot.app.screen.query_one(Input).value == "m")
        await tap(pilot, "down")
        await until(pilot, lambda: pilot.app.screen._picked == 0)
        await tap(pilot, "enter")
        await until(pilot, lambda: pilot.app.current_mode == "memory")


async def test_a_swap_is_completed_with_the_profiles_there_are_and_begun_with_its_note(window, fake) -> None:
    fake.answers[("GET", "/admin/profiles")] = {"profiles": [{"name": "long-doc"}, {"name": "fallback"}, {"name": 7}]}
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        begun = []
        pilot.app.start_swap = lambda name, note="": begun.append((name, note))
        await tap(pilot, *":swap l")
        await until(pilot, lambda: "long-doc" in pilot.app.profile_names and pilot.app.is_typing)
        await tap(pilot, *"o")
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "swap lo")
        await tap(pilot, "tab")
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "swap long-doc ")
        await tap(pilot, *"for ann", "enter")
        await until(pilot, lambda: begun)
        assert begun == [("long-doc", "for ann")]


@pytest.mark.parametrize(
    "line,says",
    [
        ("rate", "rate should be followed by seconds between 0.2 and 60"),
        ("rate nan", "rate should be followed by seconds"),
        ("rate 1 2", "rate should be followed by seconds"),
        ("ascii maybe", "ascii should be followed by on or off"),
        ("theme nrod", "there is no theme 'nrod'; did you mean 'nord'?"),
        ("queue now", "queue takes no words, not 'now'"),
        ("edit", "edit should be followed by PROFILE"),
        ("diff a", "diff should be followed by PROFILE PROFILE"),
        ("logs a b c", "logs should be followed by [SOURCE [LEVEL]]"),
    ],
)
async def test_a_command_that_cannot_be_done_says_what_was_expected(program, line: str, says: str) -> None:
    with pytest.raises(commands.Refused) as refused:
        commands.run(program(), line)
    assert says in str(refused.value)


async def test_looks_rates_and_read_only_by_name(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        for line, holds in (
            ("ascii off", lambda: not pilot.app.looks.ascii),
            ("mono on", lambda: pilot.app.looks.mono),
            ("mono off", lambda: pilot.app.looks.colours == "full"),
            ("theme nord", lambda: pilot.app.theme == "nord"),
            ("rate 0.5", lambda: pilot.app.pace.period_s == 0.5),
            ("readonly on", lambda: pilot.app.is_readonly),
            ("help", lambda: pilot.app.current_mode == "help"),
        ):
            await type_in(pilot, line)
            await until(pilot, holds, what=line)
        await type_in(pilot, "readonly off")
        await see(pilot, "a read-only view stays one")
        await tap(pilot, "escape")


async def test_a_report_holds_the_state_and_no_key(window, tmp_path) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        await type_in(pilot, "report")
        await see(pilot, "report written to")
    text = next((tmp_path / "xdg_state_home" / "colibri").glob("report-*.txt")).read_text()
    assert '"quick-verify"' in text and "ck-admin-test" not in text


def test_completions_hold_every_command_once() -> None:
    words = [word for word, _ in completions("", [])]
    assert sorted(words) == sorted(COMMANDS) and len(set(words)) == len(words)
    assert [word for word, _ in completions("edit l", ["long-doc", "fallback"])] == ["edit long-doc"]
    assert completions("nonsense x", ["long-doc"]) == []


async def test_enter_twice_in_one_burst_closes_the_line_and_nothing_below_it(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        for first in ("enter", "escape"):
            await tap(pilot, "colon")
            await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.is_typing)
            await tap(pilot, first, "enter", "escape", "enter")
            await until(pilot, lambda: not pilot.app.screen.is_modal)
            await pilot.pause()
        assert pilot.app.faults == []


async def test_a_line_left_open_on_another_screen_takes_no_dialog_away_here(window) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "colon")
        await until(pilot, lambda: pilot.app.screen.is_modal and pilot.app.is_typing)
        line = pilot.app.screen
        await pilot.app.switch_mode("logs")
        line.dismiss(None)
        await pilot.pause()
        assert pilot.app.faults == []
        await pilot.app.switch_mode("dash")
        assert pilot.app.screen is line
