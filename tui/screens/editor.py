"""One profile under edit: checked while it is typed, its plan beside it. Not here: the text widget, the review, rules.

The service judges; this screen shows what it says. Text is never lost: unsaved text is asked about before it goes, is
kept through a lost link, and lies in a rescue file (rescue.py) from the first pause in typing until it is saved.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import TextArea
from textual.worker import Worker

from tui import rescue
from tui.client import ClientError
from tui.dialogs.close import Close
from tui.dialogs.conflict import Conflict
from tui.dialogs.found import Found
from tui.keymap import bind
from tui.panels import faults
from tui.panels import plan as plans
from tui.screens.base import LiveScreen
from tui.screens.diff import DiffScreen
from tui.snap import Facts, Snap
from tui.stored import Stored, is_conflict
from tui.widgets.panel import Panel, Titled
from tui.widgets.profile_text import ProfileText
from tui.work import work

if TYPE_CHECKING:
    from tui.widgets.panel import Line

PAUSE_S = 0.3  # the text rests this long before it is checked


class EditBox(Titled, Vertical):
    """The frame around the text."""


class EditorScreen(LiveScreen):
    """`name` from the service, or a new profile that begins with `text`."""

    tab: ClassVar[str] = "profiles"
    CHANGING: ClassVar[frozenset[str]] = frozenset({"save", "apply"})
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("edit.save", "save", "Save"),
        bind("edit.diff", "diff", "Diff"),
        bind("edit.apply", "apply", "Review"),
        bind("edit.problem", "next_problem", "Problem"),
        bind("app.back", "close", "Close"),
    ]
    CSS = """
    EditorScreen .titled { padding: 0 1; }
    EditorScreen #upper { height: 1fr; }
    EditorScreen #edit { width: 1fr; height: 1fr; padding: 0; }
    EditorScreen #right { width: 42; height: 1fr; }
    EditorScreen #live { height: 14; }
    EditorScreen #help { height: 1fr; }
    EditorScreen #problems { height: 7; }
    EditorScreen.-narrow #upper { layout: vertical; height: 1fr; }
    EditorScreen.-narrow #right { width: 1fr; height: 3; }
    EditorScreen.-narrow #live { height: 3; }
    EditorScreen.-narrow #help { display: none; }
    EditorScreen.-narrow #problems { height: 5; }
    EditorScreen ProfileText { scrollbar-size-horizontal: 0; border: none; padding: 0; background: $surface; }
    EditorScreen ProfileText:focus { border: none; }
    """

    def __init__(self, name: str, text: str | None = None) -> None:
        super().__init__()
        self.profile = name
        self.area = ProfileText(id="text")
        self._given = text
        self.stored = Stored(name)
        self.problems: list[Facts] = []
        self._checked: str | None = None  # the text that `problems` belong to
        self._fields, self._plan, self._was = Facts(), Facts(), Facts()
        self._check_fault = self._plan_fault = ""
        self._at: int | None = None
        self._is_saving = False
        self._is_loaded = False
        self._open_fault = ""

    def body(self) -> ComposeResult:
        with Horizontal(id="upper"):
            with EditBox(id="edit", classes="titled"):
                yield self.area
            with Vertical(id="right"):
                yield Panel("Plan (live)", id="live")
                yield Panel("Field help", id="help")
        yield Panel("Problems", id="problems")

    @property
    def text(self) -> str:
        return self.area.text

    def on_mount(self) -> None:
        self.area.read_only = True
        work(self, self._open, "open", exclusive=True)

    # Opening

    async def _open(self) -> None:
        if self._given is not None:
            await self._fill(self._given)
            return
        try:
            await self.stored.open(self.program.client)
        except ClientError as error:
            self._open_fault = f"x {self.profile} cannot be opened: {error.message}"
            self._draw()
            return
        await self._fill(self.stored.shown)

    async def _fill(self, text: str) -> None:
        left = rescue.left(self.profile)
        choice = None
        if left is not None and left.text not in (text, self.stored.saved):
            choice = await self.program.ask(Found(self.profile, left))
        elif left is not None:
            rescue.forget(left)
        if left is not None and choice == "take":
            text = left.text
        self.area.load_text(text)
        self._is_loaded = True
        self.area.read_only = self.program.is_readonly
        self.area.focus()
        if left is not None and choice is not None:
            self.rescue()
            rescue.forget(left)
        work(self, partial(self._plan_before, text), "before", exclusive=True)
        self._check(0.0)

    async def _plan_before(self, text: str) -> None:
        """What the text needs as it was opened, for the "was" beside each number."""
        with suppress(ClientError):
            self._was = Facts(await self.program.client.post("/admin/plan", {"name": self.profile, "text": text}))
            self._draw()

    # Checking

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self._is_loaded:
            self._at = None
            self._check(PAUSE_S)
        self._draw()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        self._draw()

    def _check(self, pause_s: float) -> Worker[None]:
        """Exclusive: a newer text cancels the check of an older one, so no old answer is ever shown."""
        return work(self, partial(self._judge, pause_s), "check", exclusive=True)

    async def _judge(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        text = self.text
        if self.is_unsaved:
            rescue.write(self.profile, text)
        else:
            rescue.drop(self.profile)
        body = {"name": self.profile, "text": text}
        is_first = self._checked is None
        try:
            checked = Facts(await self.program.client.post("/admin/profiles/validate", body))
            self.problems, self._fields = faults.in_order(checked.rows("problems")), checked.at("fields")
            self._checked, self._check_fault = text, ""
        except ClientError as error:
            self._check_fault = error.message
        self._draw()
        self.refresh_bindings()
        if is_first and self.has_errors and self._given is None:
            self.action_next_problem()
        try:
            self._plan, self._plan_fault = Facts(await self.program.client.post("/admin/plan", body)), ""
        except ClientError as error:
            self._plan_fault = error.message
        self._draw()

    @property
    def has_errors(self) -> bool:
        return faults.counted(self.problems)[0] > 0

    @property
    def is_unsaved(self) -> bool:
        """Whether closing now would lose something."""
        return self._is_loaded and self.text not in (self.stored.saved, self.stored.draft)

    # Showing

    def show(self, snap: Snap) -> None:
        self.area.read_only = self.program.is_readonly or not self._is_loaded
        self._draw()

    def redress(self) -> None:
        super().redress()
        self.area.dress()

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        row, column = self.area.cursor_location
        state = f"{self._state()}  Ln {row + 1} Col {column + 1}"
        self.query_one("#edit", EditBox).caption(f"Edit  {self.profile}.yaml", state)
        self.area.mark(faults.marks(self.problems))
        self._draw_problems()
        self._draw_plan()
        panel, key = self.query_one("#help", Panel), faults.key_at(self.text, row)
        panel.show(faults.help_of(key, self._fields.at(key), panel.size.width), "Field help", key)

    def _state(self) -> str:
        """What the text on the screen is."""
        if self.program.is_readonly:
            return "read-only"
        if self.stored.is_new:
            return "new"
        if self.is_unsaved:
            return "modified"
        return "draft" if self.text == self.stored.draft else f"rev {self.stored.rev}"

    def _draw_problems(self) -> None:
        panel = self.query_one("#problems", Panel)
        shown = self.problems + ([] if self._plan_fault else faults.of_plan(self._plan))
        lines = faults.listed(shown, panel.size.width, self._at)
        if self._open_fault:
            lines = [[(self._open_fault, "bad")]]
        elif self._check_fault:
            lines = [[(f"! not checked: {self._check_fault}. The text is kept here.", "warning")], *lines]
        elif self.text != self._checked and self._is_loaded:
            lines = [*lines, [("checking ...", "dim")]]
        elif not lines and self._is_loaded:
            lines = [[("ok  nothing is wrong with it", "good")]]
        if self.has_errors and panel.size.height > len(lines) + 1:
            lines = [*lines, "", faults.SAVES]
        panel.show(lines, "Problems", faults.summary(shown))

    def _draw_plan(self) -> None:
        panel = self.query_one("#live", Panel)
        width, small = panel.size.width, self.has_class("-narrow")
        fault: list[Line] = [[(self._plan_fault, "warning")]] if self._plan_fault else []
        if not self._plan:
            panel.show(fault or ["asking the planner ..."], "Plan (live)", "")
            return
        lines = [plans.one_line(self._plan)] if small else plans.live(self._plan, self._was, width)
        if fault and small:
            panel.show(fault, "Plan (live)", "none of this text")
            return
        panel.show([*fault, *lines], "Plan (live)", "as of the last good text" if fault else "live")

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "apply" and self.has_errors:
            return None
        return super().check_action(action, parameters)

    def action_next_problem(self) -> None:
        """The next one below the cursor, and after the last one the first."""
        if not self.problems:
            self.notify("There are no problems.", markup=False)
            return
        row, column = self.area.cursor_location
        places = [((p.whole("line") or 1) - 1, (p.whole("col") or 1) - 1) for p in self.problems]
        after = [i for i, place in enumerate(places) if place > (row, column)]
        is_here = self._at is None and (row, column) in places
        self._at = places.index((row, column)) if is_here else after[0] if after else 0
        last = self.area.document.line_count - 1
        line = min(places[self._at][0], last)
        self.area.focus()
        self.area.move_cursor((line, min(places[self._at][1], len(self.area.document.get_line(line)))), center=True)
        self._draw()

    def action_diff(self) -> None:
        self.app.push_screen(DiffScreen(self.profile, self.text))

    def action_save(self) -> None:
        work(self, self._save, "save")

    def action_apply(self) -> None:
        if self.has_errors:
            self.notify("No swap while there are errors; ctrl+g goes to the next one.", severity="warning")
        else:
            work(self, self._apply, "save")

    async def _apply(self) -> None:
        if self.text != self.stored.saved and not await self._save():
            return
        if self.text == self.stored.saved:
            self.program.start_swap(self.profile)

    # Saving

    async def _save(self) -> bool:
        """Save as a revision, or with errors as a draft; whether it is a revision now."""
        if self._is_saving or not self._is_loaded:
            return False
        if why_not := self.program.why_not():
            self.notify(f"Not saved: {why_not}. The text stays here.", severity="warning", markup=False)
            return False
        if self.text == self.stored.saved and self.stored.draft is None:
            self.notify(f"{self.profile} has nothing to save.", markup=False)
            return True
        self._is_saving = True
        try:
            return await self._put(self.text, self._checked == self.text and self.has_errors)
        finally:
            self._is_saving = False
            self._draw()
            self.refresh_bindings()

    async def _put(self, text: str, draft: bool) -> bool:
        try:
            await self.stored.put(self.program.client, text, draft)
        except ClientError as error:
            return await self._refused(error, text, draft)
        rescue.drop(self.profile)
        if draft:
            told = faults.summary(self.problems)
            self.notify(f"Saved as a draft ({told}); it takes no effect.", severity="warning", markup=False)
        else:
            self.notify(f"Saved {self.profile} as rev {self.stored.rev}.", markup=False)
        self._refresh_list()
        return not draft

    async def _refused(self, error: ClientError, text: str, draft: bool) -> bool:
        if error.code == "profile_invalid" and not draft:
            self.problems = faults.in_order(Facts(error.facts).rows("problems"))
            return await self._put(text, draft=True)
        if is_conflict(error):
            return await self._settle(text, draft)
        self.notify(f"Not saved: {error.message}. The text stays here.", severity="error", markup=False)
        return False

    async def _settle(self, text: str, draft: bool) -> bool:
        """Somebody else's text lies there now; nobody's is lost, whatever is chosen."""
        theirs = Stored(self.profile)
        try:
            document = Facts(await self.program.client.get(f"/admin/profiles/{self.profile}"))
        except ClientError as error:
            self.notify(f"Not saved: {error.message}. The text stays here.", severity="error", markup=False)
            return False
        theirs.take(document)
        choice = await self.program.ask(Conflict(self.profile, document))
        if choice == "mine":
            self.stored = theirs
            return await self._put(text, draft)
        if choice == "theirs":
            if path := self.program.keep(f"mine-{self.profile}", text, "yaml"):
                self.stored = theirs
                await self._fill(theirs.shown)
                self.notify(f"Their text is shown; yours is in {path}.", timeout=10, markup=False)
        elif choice == "diff":
            self.app.push_screen(DiffScreen(self.profile, text, against=theirs.shown))
        return False

    def _refresh_list(self) -> None:
        for screen in self.app.screen_stack:
            if refresh := getattr(screen, "refresh_list", None):
                refresh(self.profile)

    # Leaving

    def on_profile_text_left(self, event: ProfileText.Left) -> None:
        event.stop()
        self.action_close()

    def action_close(self) -> None:
        work(self, self._close, "close", exclusive=True)

    async def _close(self) -> None:
        if self.is_unsaved:
            choice = await self.program.ask(Close(self.profile))
            if choice is None:
                return
            if choice == "save":
                await self._save()
                if self.is_unsaved:
                    return
        self._is_loaded = False
        rescue.drop(self.profile)
        if self.is_current:
            self.app.pop_screen()

    def unsaved(self) -> str:
        """The name of what would be lost if the program ended now, or empty."""
        return self.profile if self.is_unsaved else ""

    def rescue(self) -> None:
        """Write the text to the rescue file on the way out; never raises."""
        if self._is_loaded and self.is_unsaved:
            rescue.write(self.profile, self.text)
