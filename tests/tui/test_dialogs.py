"""Every dialog of the program: it opens on Cancel, esc answers nothing, it fits every window and hides no state."""

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tui.dialogs
from tests.tui.fake import STATE, Fake
from tests.tui.frames import frame, see, tap, until
from tests.tui.shelf import Shelf
from tests.tui.test_keys import settings
from tui.dialogs.base import Ask, Choice, Dialog
from tui.dialogs.close import Close
from tui.dialogs.confirm_word import ConfirmWord
from tui.dialogs.conflict import Conflict
from tui.dialogs.found import Found
from tui.dialogs.name import NewName
from tui.dialogs.pick import Pick
from tui.dialogs.plan import PlanView
from tui.dialogs.review import Review
from tui.looks import Looks
from tui.rescue import Rescued
from tui.snap import Facts

SIZES = [(120, 36), (80, 24), (60, 16), (40, 10)]


def plan() -> Facts:
    shelf = Shelf(Fake())
    return Facts(shelf.plan("long-doc", shelf.texts["long-doc"]))


MAKERS: dict[type[Dialog], Callable[[], Dialog]] = {
    Ask: lambda: Ask("Really?", ["It cannot be taken back."], "Do it"),
    Close: lambda: Close("long-doc.yaml"),
    ConfirmWord: lambda: ConfirmWord("Delete long-doc", ["Its history stays."], "long-doc"),
    Conflict: lambda: Conflict("long-doc", Facts({"rev": 7, "history": [{"rev": 7, "by": "ann"}]})),
    Found: lambda: Found("long-doc", Rescued(Path("/x/rescue-long-doc-1.yaml"), "name: long-doc\n", 1_790_000_000.0)),
    NewName: lambda: NewName("Clone", "long-doc-2", ["long-doc"]),
    Pick: lambda: Pick("Swap to", [Facts({"name": name}) for name in ("long-doc", "fallback")]),
    PlanView: lambda: PlanView("long-doc", plan()),
    Review: lambda: Review(plan(), Facts(STATE)),
}


def dialogs(of: type = Dialog) -> Iterator[type]:
    """The dialogs that can be opened: those without further ones below them."""
    for kind in of.__subclasses__():
        yield from dialogs(kind)
        if not kind.__subclasses__() and kind.__module__.startswith("tui."):
            yield kind


def test_the_walk_leaves_no_dialog_out() -> None:
    for module in pkgutil.iter_modules(tui.dialogs.__path__):
        import_module(f"tui.dialogs.{module.name}")
    assert set(dialogs()) == set(MAKERS)


@pytest.mark.parametrize("ascii", [True, False], ids=["ascii", "full"])
async def test_a08_every_dialog_opens_on_cancel_fits_and_answers_nothing_to_escape(window, ascii: bool) -> None:
    async with window(*SIZES[0], looks=Looks(ascii=ascii), config=settings(start_screen="memory")) as pilot:
        await see(pilot, "[READY]")
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            for kind, make in MAKERS.items():
                answers: list[object] = []
                dialog = make()
                pilot.app.push_screen(dialog, answers.append)
                await until(pilot, lambda d=dialog: isinstance(d.focused, Choice), what=f"{kind} with a focus")
                assert dialog.focused.id == "cancel", kind
                words = "[READY]", "quick-verify", f"[ {kind.CANCEL} ]"
                await until(pilot, lambda w=words: all(word in frame(pilot.app) for word in w), what=f"{kind}")
                lines = frame(pilot.app).split("\n")
                assert (len(lines), {len(line) for line in lines}) == (height, {width}), kind
                assert "[READY]" in lines[0] and "quick-verify" in lines[0], f"{kind.__name__} hides who serves"
                assert any("[ " in line for line in lines[1:-1]), f"{kind.__name__} at {width}x{height} shows no choice"
                assert dialog.max_scroll_y == 0
                await tap(pilot, "escape")
                await until(pilot, lambda: not pilot.app.screen.is_modal, what=f"{kind} closed")
                assert answers == [None], kind


async def test_two_enters_in_a_row_close_one_dialog_and_not_the_screen_below(window) -> None:
    async with window(80, 24, config=settings(start_screen="memory")) as pilot:
        await see(pilot, "[READY]")
        answers: list[object] = []
        pilot.app.push_screen(Ask("Really?", ["It cannot be taken back."]), answers.append)
        await until(pilot, lambda: isinstance(pilot.app.focused, Choice))
        await tap(pilot, "right", "enter", "enter", "enter")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        await see(pilot, "- Memory")
        assert answers == [True] and len(pilot.app.screen_stack) == 1
