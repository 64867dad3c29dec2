"""Help lists the keys that are live on the screen it was asked from, and nothing else; pages, finding, writing."""

from pathlib import Path
from typing import Any

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tui.keymap import MODES
from tui.looks import Looks
from tui.pace import Pace
from tui.screens.help import HelpScreen


def asked_from(pilot: Any) -> HelpScreen:
    screen = pilot.app.screen
    assert isinstance(screen, HelpScreen)
    return screen


def bindings(screen: Any) -> dict[str, set[str]]:
    """Description -> keys as they are shown, of every live binding that says what it does."""
    found: dict[str, set[str]] = {}
    for active in screen.active_bindings.values():
        if active.binding.description:
            shown = screen.app.get_key_display(active.binding)
            found.setdefault(active.binding.description, set()).add(shown)
    return found


async def listed_from(pilot: Any, mode: str) -> None:
    """Go to a screen, ask for help, compare what is listed with what is live there."""
    await pilot.app.switch_mode(mode)
    await pilot.pause()
    origin = pilot.app.screen
    await pilot.press("question_mark")
    await until(pilot, lambda: pilot.app.current_mode == "help")
    wanted = bindings(origin)
    everywhere, here = asked_from(pilot).entries()
    listed = {entry.words: set(entry.keys.split(" ")) for entry in (*everywhere, *here)}
    assert len(listed) == len(everywhere) + len(here), "each once"
    assert set(listed) == set(wanted), mode
    for words, keys in wanted.items():
        assert listed[words] <= keys and keys - listed[words] <= {"super+c"}, words
    await pilot.press("escape")
    await until(pilot, lambda: pilot.app.current_mode == mode)


async def test_a04_every_live_binding_and_nothing_else(window, fake: Fake) -> None:
    async with window(120, 36, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        for mode in MODES:
            await listed_from(pilot, mode)
        await fake.stop()
        await see(pilot, "[NO LINK]")
        await listed_from(pilot, "profiles")


async def test_what_is_listed_is_on_the_screen_and_what_is_off_is_in_brackets(window, fake: Fake) -> None:
    async with window(120, 36, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("question_mark")
        text = await see(pilot, "Everywhere", "This screen: Dash", "Words and signs", "Command line", "This terminal")
        everywhere, here = asked_from(pilot).entries()
        for entry in (*everywhere, *here):
            assert entry.words[:12] in text and entry.keys.split(" ")[0] in text, entry
        assert "( s )" not in text
        await fake.stop()
        await see(pilot, "(s) ")


async def test_words_cover_every_state_and_the_terminal_is_told(window, fake: Fake) -> None:
    async with window(120, 36, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("f1")
        text = await see(pilot, "This terminal")
        for word in ("STOPPED", "READY", "LOADING", "DRAINING", "SWAPPING", "DEGRADED", "CRASHED", "NO LINK"):
            assert f"[{word}]" in text
        for fact in ("120x36", "plain signs", "colibri-safe", "mouse off", "tui.yaml", fake.url, "0.1.0, admin API 1"):
            assert fact in text


async def test_three_pages_at_80_columns(window) -> None:
    async with window(80, 24, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("question_mark")
        text = await see(pilot, "Everywhere", "This screen: Dash", "1/3")
        assert "Words and signs" not in text
        await pilot.press("tab")
        text = await see(pilot, "Words and signs", "Command line", "2/3", ":swap PROFILE")
        assert "Everywhere" not in text
        await pilot.press("tab")
        await see(pilot, "This terminal", "3/3", "80x24")
        await pilot.press("tab")
        await see(pilot, "Everywhere", "1/3")
        await pilot.press("shift+tab")
        await see(pilot, "3/3")


async def test_one_panel_after_the_other_at_60_columns(window) -> None:
    async with window(60, 16, looks=Looks(colours="mono", ascii=True)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("question_mark")
        seen = set()
        for _ in range(5):
            await pilot.pause()
            titles = [line.split("-")[1].strip() for line in frame(pilot.app).splitlines() if line.startswith("+- ")]
            seen.update(titles[:1])
            await pilot.press("tab")
        assert len(seen) == 5, seen


async def test_finding_a_key(window) -> None:
    async with window(120, 36, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("7")
        await see(pilot, "Logs  all")
        await pilot.press("question_mark", "slash", *"wrap", "enter")
        text = await see(pilot, "W Wrap: long lines whole", "no key with these words")
        assert "Follow" not in text
        await pilot.press("escape")
        await see(pilot, "Follow")


async def test_the_help_is_written_whole(window) -> None:
    async with window(80, 24, pace=Pace(0.2)) as pilot:
        await see(pilot, "10a4")
        await pilot.press("question_mark")
        await see(pilot, "Everywhere")
        await pilot.press("w")
        await see(pilot, "written to")
        (path,) = (Path(path) for path in Path.home().parent.glob("xdg_state_home/colibri/help-*"))
        text = path.read_text()
        for words in ("Quit at once", "change the profile in force; asks first", "page cache", "This terminal"):
            assert words in text
