"""What runs now against what would run: the texts by difflib, the effects by the planner. Not here: the lines."""

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from tui.client import ClientError
from tui.keymap import bind
from tui.panels import diff as lines
from tui.panels import plan as plans
from tui.panels.diff import Row
from tui.panels.pieces import wrapped
from tui.screens.base import LiveScreen
from tui.snap import Facts
from tui.widgets.panel import Panel
from tui.words import fit, plain
from tui.work import work

if TYPE_CHECKING:
    from tui.widgets.panel import Line

SPLIT_WIDTH = 100
MEANING = {"-": "warning", "+": "good"}


class DiffScreen(LiveScreen):
    """`name` as stored, or `text` instead of it; against the profile in force, the profile `other`, or a text."""

    tab: ClassVar[str] = "profiles"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("diff.unified", "unified", "Unified"),
        bind("diff.next", "next(1)", "Change"),
        bind("diff.previous", "next(-1)", "Previous change", show=False),
        bind("diff.changes", "changes", "Only changes"),
        bind("edit.apply", "apply", "Review"),
        bind("prof.edit", "edit", "Edit"),
        bind("app.back", "close", "Close"),
    ]
    CHANGING: ClassVar[frozenset[str]] = frozenset({"apply"})
    CSS = """
    DiffScreen .titled { padding: 0 1; }
    DiffScreen #texts { height: 1fr; }
    DiffScreen #effect { height: 8; }
    """

    def __init__(self, name: str, text: str | None = None, against: str | None = None, other: str = "") -> None:
        super().__init__()
        self.profile = name
        self._text = text
        self._against = against
        self._other = other
        self._old_title = "Theirs" if against is not None else "Running now"
        self._new_title = "Mine" if against is not None else "To apply"
        self._rows: list[Row] = []
        self._plan = Facts()
        self._fault = ""
        self._is_unified: bool | None = None  # by the width, until somebody chooses
        self._only_changes = False
        self._at = -1

    def body(self) -> ComposeResult:
        with Horizontal(id="texts"):
            yield Panel(id="old")
            yield Panel(id="new")
        yield Panel("What this changes", id="effect")

    @property
    def is_unified(self) -> bool:
        return self.size.width < SPLIT_WIDTH if self._is_unified is None else self._is_unified

    def on_mount(self) -> None:
        work(self, self._fetch, "diff", exclusive=True)

    async def _fetch(self) -> None:
        body: dict[str, str] = {"name": self.profile}
        try:
            new = self._text
            if new is None:
                new, rev = await self._stored(self.profile, None)
                self._new_title = f"To apply: {self.profile} rev {rev}"
            else:
                self._new_title = f"{self._new_title}: {self.profile}"
                body["text"] = new
            old = self._against if self._against is not None else await self._old()
            self._rows = lines.rows(old, new)
            self._plan = Facts(await self.program.client.post("/admin/plan", body))
        except ClientError as error:
            self._fault = error.message
        self.draw()

    async def _old(self) -> str:
        """The text of the other side: another profile as stored, or the revision in force, whatever was saved since."""
        if self._other:
            text, rev = await self._stored(self._other, None)
            self._old_title = f"{self._other} rev {rev}"
            return text
        name, rev = self.program.snap.text("profile.name"), self.program.snap.text("profile.rev")
        self._old_title = f"Running now: {name} rev {rev}"
        return (await self._stored(name, rev))[0]

    async def _stored(self, name: str, rev: str | None) -> tuple[str, str]:
        found = Facts(await self.program.client.get(f"/admin/profiles/{name}", {"rev": rev} if rev else None))
        return str(found.get("text") or ""), found.text("rev", "?")

    def draw(self) -> None:
        """Both texts, or one, and the effects."""
        old, new = self.query_one("#old", Panel), self.query_one("#new", Panel)
        if new.display == self.is_unified:
            new.display = not self.is_unified
            # Textual does not always tell the panel beside it that it has more room now.
            self.call_after_refresh(old.redress)
        added, removed = lines.counts(self._rows)
        told = f"+{added} -{removed}"
        if self.is_unified:
            title = f"{self._old_title.replace('Running now: ', '')} -> {self._new_title.replace('To apply: ', '')}"
            shown = lines.unified(self._rows, self._only_changes)
            old.show(self._lines(shown, self.size.width - 4, False), f"Diff  {title}", f"unified  {told}")
        else:
            left, right = lines.split(self._rows, self._only_changes)
            width = self.size.width // 2 - 4
            old.show(self._lines(left, width, True), self._old_title, "")
            new.show(self._lines(right, width, True), self._new_title, told)
        self._draw_effect()

    def _lines(self, shown: list[lines.Line], width: int, numbers: bool) -> list["Line"]:
        if not shown:
            words = self._fault or ("The texts are equal." if self._rows or self._plan else "asking ...")
            return [words]
        found: list[Line] = []
        here = lines.starts(shown)[self._at] if 0 <= self._at < len(lines.starts(shown)) else -1
        for index, line in enumerate(shown):
            is_here = index == here
            no = f"{line.no or '':>3} " if numbers else ""
            sign = f"{'>' if is_here else ' '}{line.sign} "
            body = fit(plain(line.text), max(4, width - len(no) - len(sign)), self.program.looks.more).rstrip()
            found.append([(no, "dim"), (sign + body, MEANING.get(line.sign, ""))])
        return found

    def _draw_effect(self) -> None:
        panel = self.query_one("#effect", Panel)
        if not self._plan:
            panel.show([[(f"x {self._fault}", "bad")]] if self._fault else ["asking the planner ..."])
            return
        width, room = panel.size.width, self.size.height * 9 // 20
        told: list[Line] = [plans.requests(self._plan), *self._plan.texts("side_effects"), plans.gap(self._plan)]
        told += plans.rollback(self._plan, width)[:1] + plans.faults(self._plan, width)
        effects = plans.effects(self._plan, width)
        if len(effects) + len(told) + 3 > room:
            rows = self._plan.rows("changes")
            words = "; ".join(f"{row.text('key')}: {row.text('effect')}" for row in rows)
            effects = wrapped(words, width)[: max(2, room - len(told) - 3)] if room < 14 else effects
        told = [*effects, "", *told] if room >= 14 else [*effects, *told]
        panel.styles.height = min(room, len(told) + 2)
        # The planner compares with what runs now, whatever stands on the other side.
        title = f"What a swap to {self.profile} changes" if self._other else "What this changes"
        panel.show(told, title, f"{len(self._plan.rows('changes'))} fields")

    # Keys

    def action_unified(self) -> None:
        self._is_unified = not self.is_unified
        self.draw()

    def action_changes(self) -> None:
        self._only_changes = not self._only_changes
        self.draw()

    def action_next(self, step: int) -> None:
        """To the next stretch of changes; after the last one the first."""
        shown = lines.unified(self._rows, self._only_changes) if self.is_unified else \
            lines.split(self._rows, self._only_changes)[0]  # fmt: skip
        places = lines.starts(shown)
        if not places:
            return
        self._at = (self._at + step) % len(places) if self._at >= 0 else (0 if step > 0 else len(places) - 1)
        self.draw()
        for panel in self.query("#texts Panel").results(Panel):
            panel.action_move(-len(shown))
            panel.action_move(max(0, places[self._at] - 2))

    def action_apply(self) -> None:
        """From an edit, its own ctrl+r, which saves first; from the list, the review."""
        apply = getattr(self._below, "action_apply", None)
        if apply is not None:
            self.app.pop_screen()
            apply()
        else:
            self.program.start_swap(self.profile)

    @property
    def _below(self) -> object:
        """The screen that this one lies over: an editor or the list."""
        return self.app.screen_stack[-2] if len(self.app.screen_stack) > 1 else None

    def action_edit(self) -> None:
        below = self._below
        self.app.pop_screen()
        if open_editor := getattr(below, "open_editor", None):
            open_editor(self.profile)

    def action_close(self) -> None:
        self.app.pop_screen()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.draw)

    def redress(self) -> None:
        super().redress()
        self.draw()
