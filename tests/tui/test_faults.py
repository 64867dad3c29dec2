"""A fault of a screen stays on it: in show, a handler, an action, a timer, its making; and the way back from it."""

import pytest
from textual.binding import Binding
from textual.message import Message

from tests.tui.frames import frame, see, tap, until
from tui import app as app_module
from tui.screens.base import LiveScreen
from tui.screens.places import MemoryPlace, QueuePlace
from tui.widgets.panel import Panel

FAILED = ("This panel failed", "r to retry", "[READY]")


class Broken(LiveScreen):
    """Fails where it is told to."""

    tab = "queue"
    where = ""
    BINDINGS = [Binding("x", "break")]

    class Poke(Message):
        pass

    def body(self):
        if self.where == "body":
            raise RuntimeError("broken on purpose [in body]")
        yield Panel("Fine", id="fine")

    def show(self, snap) -> None:
        if self.where == "show":
            raise RuntimeError("broken on purpose [in show]")
        self.query_one("#fine", Panel).show(["all is well"])

    def on_broken_poke(self) -> None:
        raise RuntimeError("broken on purpose [in handler]")

    def action_break(self) -> None:
        raise RuntimeError("broken on purpose [in action]")

    def breaks(self) -> None:
        raise RuntimeError("broken on purpose [in timer]")


@pytest.fixture
def broken(monkeypatch) -> type[Broken]:
    monkeypatch.setitem(app_module.SCREENS, "queue", f"{__name__}:Broken")
    monkeypatch.setattr(Broken, "where", "")
    return Broken


@pytest.mark.parametrize("where", ["body", "show", "handler", "action", "timer"])
async def test_a_fault_is_shown_and_kept_and_the_rest_goes_on(window, broken, monkeypatch, tmp_path, where) -> None:
    monkeypatch.setattr(broken, "where", where)
    async with window(120, 36, is_faulty=True) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "3")
        if where in ("handler", "action", "timer"):
            await see(pilot, "all is well")
            screen = pilot.app.screen
            if where == "handler":
                screen.post_message(Broken.Poke())
            elif where == "action":
                await tap(pilot, "x")
            else:
                screen.set_timer(0.01, screen.breaks)
        text = await see(pilot, *FAILED, f"broken on purpose [in {where}]", "r Retry this panel")
        file = next((tmp_path / "xdg_state_home" / "colibri").glob("fault-*.txt"))
        assert "Traceback" in file.read_text() and str(file)[:40] in text
        await tap(pilot, "5")
        await see(pilot, "- Memory", "[READY]")
        monkeypatch.setattr(broken, "where", "")
        await tap(pilot, "3")
        await see(pilot, *FAILED)
        await tap(pilot, "r")
        await see(pilot, "all is well", "[READY]")
        assert "failed" not in frame(pilot.app)


async def test_a_screen_that_cannot_be_imported_is_a_failed_screen(window, monkeypatch) -> None:
    monkeypatch.setitem(app_module.SCREENS, "queue", "tui.screens.nowhere:Nothing")
    async with window(120, 36, is_faulty=True) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "3")
        await see(pilot, *FAILED, "No module named 'tui.screens.nowhere'")
        monkeypatch.setitem(app_module.SCREENS, "queue", "tui.screens.places:QueuePlace")
        await tap(pilot, "r")
        await see(pilot, "- Queue")
        assert isinstance(pilot.app.screen, QueuePlace)


async def test_a_fault_while_nobody_looks_does_not_disturb_the_screen_that_is_seen(window, broken) -> None:
    async with window(120, 36, is_faulty=True) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "3")
        await see(pilot, "all is well")
        hidden = pilot.app.screen
        await tap(pilot, "5")
        await see(pilot, "- Memory")
        hidden.post_message(Broken.Poke())
        await until(pilot, lambda: pilot.app.faults)
        assert "failed" not in frame(pilot.app) and isinstance(pilot.app.screen, MemoryPlace)
        await tap(pilot, "3")
        await see(pilot, *FAILED)


async def test_the_first_fault_is_the_one_that_stays(window, broken, monkeypatch) -> None:
    async with window(120, 36, is_faulty=True) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "3")
        await see(pilot, "all is well")
        for _ in range(5):
            pilot.app.screen.post_message(Broken.Poke())
        await see(pilot, *FAILED)
        assert frame(pilot.app).count("This panel failed;") == 1


async def test_a_fault_of_the_poller_is_told_and_it_goes_on_asking(window, monkeypatch) -> None:
    async with window(80, 24, is_faulty=True) as pilot:
        await see(pilot, "[READY]")
        ask, poller = pilot.app.poller._ask, pilot.app.poller
        poller._ask = lambda: 1 / 0
        await see(pilot, "This panel failed", "division by zero")
        poller._ask = ask
        n = pilot.app.snap.now
        await until(pilot, lambda: pilot.app.snap.now > n, what="a newer snapshot")
        await tap(pilot, "r")
        await see(pilot, "- Engine", "[READY]")
