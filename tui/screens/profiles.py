"""The profiles: which there are, which would fit now and why. Not here: editing (editor.py), the swap (flows.py)."""

import asyncio
import time
from functools import partial
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable

from tui.client import ClientError
from tui.dialogs.confirm_word import ConfirmWord
from tui.dialogs.name import NewName
from tui.dialogs.plan import PlanView
from tui.keymap import bind
from tui.panels import profiles as told
from tui.panels.faults import summary
from tui.screens.base import LiveScreen
from tui.screens.diff import DiffScreen
from tui.screens.editor import EditorScreen
from tui.snap import Facts, Snap
from tui.widgets.panel import Panel, Titled
from tui.widgets.profile_table import ProfileTable
from tui.words import plain
from tui.work import work

PAUSE_S = 0.2  # the cursor rests this long before the planner is asked
FRESH_S = 15.0  # the list is asked for again after this, since free memory moves
TEMPLATE = """# What it is for, in a line or two.

# What the profile is called; the file's name without .yaml.
name: {name}

# One line that says what it is for.
summary: ""

# Positions of the context; 0 lets the planner choose.
ctx_size: 0
"""


class ListBox(Titled, Vertical):
    """The frame around the table."""


class ProfilesScreen(LiveScreen):
    """List, details of the row under the cursor, and the planner's reasons."""

    tab: ClassVar[str] = "profiles"
    FILTERS: ClassVar[bool] = True
    CHANGING: ClassVar[frozenset[str]] = frozenset({"swap_to", "clone", "add", "delete"})
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("prof.edit", "edit", "Edit"),
        bind("prof.diff", "diff", "Diff"),
        bind("prof.plan", "plan", "Plan"),
        bind("app.swap", "swap_to", "Swap to this"),
        bind("prof.clone", "clone", "Clone"),
        bind("prof.add", "add", "Add"),
        bind("prof.validate", "validate", "Validate"),
        bind("prof.delete", "delete", "Delete"),
    ]
    CSS = """
    ProfilesScreen .titled { padding: 0 1; }
    ProfilesScreen #top { height: 1fr; }
    ProfilesScreen ProfileTable, ProfilesScreen ProfileTable > .datatable--header { background: $background; }
    ProfilesScreen #list { width: 1fr; height: 1fr; }
    ProfilesScreen #details { width: 37; }
    ProfilesScreen #why { height: 9; }
    ProfilesScreen.-xwide #details { width: 52; }
    ProfilesScreen.-narrow #top { layout: vertical; }
    ProfilesScreen.-narrow #details { width: 1fr; height: 8; }
    ProfilesScreen.-narrow #why { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._profiles: list[Facts] = []
        self._listing = Facts()
        self._asked_at = 0.0
        self._asked_for: tuple[str, str, str] = ("", "", "")
        self._error = ""
        self._plans: dict[tuple[str, str], Facts] = {}
        self._filter = ""
        self._wanted = ""

    def body(self) -> ComposeResult:
        with Horizontal(id="top"):
            with ListBox(id="list", classes="titled"):
                yield ProfileTable(id="table")
            yield Panel(id="details")
        yield Panel("Why or why not", id="why")

    @property
    def table(self) -> ProfileTable:
        return self.query_one("#table", ProfileTable)

    @property
    def current(self) -> Facts:
        """The row under the cursor."""
        return self.table.facts(self.table.current)

    # What is shown

    def show(self, snap: Snap) -> None:
        seen = (snap.text("profile.name"), snap.text("profile.rev"), snap.text("state"))
        is_old = time.monotonic() - self._asked_at > FRESH_S
        if snap.link.is_up and (seen != self._asked_for or is_old):
            self._asked_for = seen
            self.refresh_list()
        self._draw()

    def refresh_list(self, stand_on: str = "") -> None:
        """Ask for the list again; the answer is drawn when it comes."""
        self._wanted = stand_on or self._wanted
        self._asked_at = time.monotonic()
        work(self, self._fetch, "list", exclusive=True)

    async def _fetch(self) -> None:
        try:
            self._listing, self._error = Facts(await self.program.client.get("/admin/profiles")), ""
        except ClientError as error:
            self._error = error.message
        self._profiles = self._listing.rows("profiles")
        self._draw()
        if self._wanted:
            self.table.stand_on(self._wanted)
            self._wanted = ""
        self._ask_plan(pause=False)

    def _draw(self) -> None:
        shown = [profile for profile in self._profiles if told.matches(profile, self._filter)]
        self.table.show(shown)
        of = f"{len(shown)} of {len(self._profiles)}" if self._filter else f"{len(self._profiles)}"
        of = of if self._listing else "-"
        filtered = f"  filter: {plain(self._filter)}" if self._filter else ""
        folder = self._listing.text("folder") if self.size.width >= 100 else ""
        self.query_one("#list", ListBox).caption("Profiles", f"{folder}  {of} files{filtered}".strip())
        self._draw_current()

    def _draw_current(self) -> None:
        profile, details, why = self.current, self.query_one("#details", Panel), self.query_one("#why", Panel)
        if not profile:
            words = self._error or ("nothing matches the filter" if self._filter else "no list yet")
            details.show([words], "", "")
            why.show([words], None, "")
            return
        name = profile.text("name", "?")
        plan = self._plans.get(self._key(profile), Facts())
        if self.has_class("-narrow") and not self._zoomed:
            lines = told.strip(profile, plan, details.size.width)
        else:
            lines = told.details(profile, plan, details.size.width)
        details.show(lines, name, f"rev {profile.text('rev', '?')}")
        why.show(told.why(profile, plan, why.size.width), "Why or why not", name)

    @staticmethod
    def _key(profile: Facts) -> tuple[str, str]:
        return profile.text("name", "?"), profile.text("etag")

    # The planner, for the row under the cursor

    def on_profile_table_moved(self, event: ProfileTable.Moved) -> None:
        event.stop()
        self._draw_current()
        self._ask_plan(pause=True)

    def _ask_plan(self, pause: bool) -> None:
        ask = partial(self._plan, PAUSE_S if pause else 0.0)
        work(self, ask, "plan", exclusive=True)

    async def _plan(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        profile = self.current
        if not profile:
            return
        try:
            plan = Facts(await self.program.client.post("/admin/plan", {"name": profile.text("name")}))
        except ClientError as error:
            plan = Facts({"reason": error.message, "verdict": "BAD"} if error.status else {})
        self._plans[self._key(profile)] = plan
        self._draw_current()

    # Keys

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.action_edit()

    def action_edit(self) -> None:
        if self.current:
            self.open_editor(self.table.current)

    def open_editor(self, name: str, text: str | None = None) -> None:
        """Edit a profile; with `text` a new one that is not on the server yet."""
        if not any(isinstance(each, EditorScreen) and each.profile == name for each in self.app.screen_stack):
            self.app.push_screen(EditorScreen(name, text))

    def action_diff(self) -> None:
        if self.current:
            self.app.push_screen(DiffScreen(self.table.current))

    def action_plan(self) -> None:
        if profile := self.current:
            plan = self._plans.get(self._key(profile), Facts())
            self.app.push_screen(PlanView(profile.text("name"), plan))

    def action_swap_to(self) -> None:
        if self.current:
            self.program.start_swap(self.table.current)

    def action_clone(self) -> None:
        if self.current:
            work(self, partial(self._clone, self.table.current), "make")

    async def _clone(self, source: str) -> None:
        name = await self._new_name(f"Clone {source}", f"{source}-2")
        if not name:
            return
        try:
            stored = Facts(await self.program.client.get(f"/admin/profiles/{source}"))
        except ClientError as error:
            self.notify(f"{source} was not cloned: {error.message}", severity="error", markup=False)
            return
        text = cast(str, stored.raw.get("text") or "")
        self.open_editor(name, renamed(text, name))

    def action_add(self) -> None:
        work(self, self._add, "make")

    async def _add(self) -> None:
        if name := await self._new_name("New profile", ""):
            self.open_editor(name, TEMPLATE.format(name=name))

    async def _new_name(self, title: str, name: str) -> str | None:
        taken = {profile.text("name") for profile in self._profiles}
        return await self.program.ask(NewName(title, name, taken))

    def action_validate(self) -> None:
        work(self, self._validate, "validate", exclusive=True)

    async def _validate(self) -> None:
        """Each file by the service's own check, anew; the row keeps what was found."""
        client, rows = self.program.client, []
        for profile in self._profiles:
            name = profile.text("name", "?")
            try:
                stored = await client.get(f"/admin/profiles/{name}")
                body = {"name": name, "text": stored.get("text", "")}
                problems = Facts(await client.post("/admin/profiles/validate", body)).rows("problems")
            except ClientError as error:
                rows.append((name, "x", error.message))
                continue
            errors = [problem for problem in problems if problem.text("severity") == "error"]
            first = next(iter(errors or problems), Facts())
            words = summary(problems)
            where = f"; line {first.text('line')}: {first.text('message')}" if first else ""
            rows.append((name, "x" if errors else "!" if problems else "ok", words + where))
        bad = sum(mark == "x" for _, mark, _ in rows)
        self.app.push_screen(PlanView.of(f"Validated {len(rows)} files, {bad} with errors", [
            [(f"{mark:<3}", {"x": "bad", "!": "warning"}.get(mark, "good")), (f"{name:<16} {words}", "")]
            for name, mark, words in rows
        ]))  # fmt: skip

    def action_delete(self) -> None:
        profile = self.current
        if not profile:
            return
        name = profile.text("name", "?")
        why_not = ""
        if profile.text("state") == "active":
            why_not = "it serves now; swap to another first"
        elif profile.flag("is_fallback"):
            why_not = "it is the fallback, which is never deleted"
        elif profile.text("source") == "packaged":
            why_not = "it is as shipped; there is nothing to delete"
        if why_not:
            self.notify(f"{name}: {why_not}.", severity="warning", markup=False)
        else:
            work(self, partial(self._delete, profile), "make")

    async def _delete(self, profile: Facts) -> None:
        name = profile.text("name", "?")
        lines = [f"Delete {name} rev {profile.text('rev', '?')}? Of a shipped profile the shipped text comes back.",
                 "The history of its revisions stays on the server."]  # fmt: skip
        if not await self.program.ask(ConfirmWord(f"Delete {name}", lines, name)):
            return
        try:
            etag = {"If-Match": f'"{profile.text("etag")}"'}
            await self.program.client.delete(f"/admin/profiles/{name}", etag)
            self.notify(f"{name} was deleted.", markup=False)
        except ClientError as error:
            self.notify(f"{name} was not deleted: {error.message}", severity="error", markup=False)
        self.refresh_list()

    def filter(self, text: str) -> None:
        """Words, `field:value`, `!word`; fields are the columns' names."""
        self._filter = text
        self._draw()

    def command(self, word: str, rest: list[str]) -> bool:
        """`:edit P`, `:plan P`, `:diff A B`."""
        if word == "edit":
            self.open_editor(rest[0])
        elif word == "plan":
            work(self, partial(self._show_plan, rest[0]), "plan")
        elif word == "diff":
            self.app.push_screen(DiffScreen(rest[1], other=rest[0]))
        else:
            return False
        return True

    async def _show_plan(self, name: str) -> None:
        try:
            plan = Facts(await self.program.client.post("/admin/plan", {"name": name}))
        except ClientError as error:
            self.notify(f"no plan of {plain(name)}: {error.message}", severity="error", markup=False)
            return
        self.app.push_screen(PlanView(name, plan))


def renamed(text: str, name: str) -> str:
    """The text of a profile with another name in its `name:` line, all else as it was."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.startswith("name:"):
            end = line[len(line.rstrip("\r\n")) :]
            lines[index] = f"name: {name}{end}"
            return "".join(lines)
    return f"name: {name}\n{text}"
