"""A plan to read: numbers, stages, changes, checks, and where each setting comes from. Not here: acting on it."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from tui.dialogs.base import Lines
from tui.dialogs.scrolled import Body, ScrolledDialog
from tui.panels import plan as plans
from tui.panels.pieces import Line
from tui.snap import Facts
from tui.words import fit


class PlanView(ScrolledDialog[None]):
    """Lines to scroll through, and Close."""

    CANCEL: ClassVar[str] = "Close"
    CSS = "PlanView .dialog { width: 96%; max-width: 116; }"

    def __init__(self, name: str, plan: Facts, lines: Sequence[Line] | None = None) -> None:
        super().__init__()
        self.title_words = f"Plan of {name}" if lines is None else name
        self._plan = plan
        self._given = lines

    @classmethod
    def of(cls, title: str, lines: Sequence[Line]) -> "PlanView":
        """The same for lines of any kind."""
        return cls(title, Facts(), lines)

    def content(self) -> ComposeResult:
        width = min(116, self.app.size.width * 96 // 100) - 4
        with Body():
            yield Lines(self._given if self._given is not None else whole(self._plan, width))


def whole(plan: Facts, width: int) -> list[Line]:
    """Everything that the plan says."""
    if not plan.has("total_bytes"):
        return [plan.text("reason", "There is no plan yet.")]
    lines: list[Line] = [plans.one_line(plan), plan.text("budget_reason"), plan.text("reason"), ""]
    lines += [*plans.stages(plan, width), "", *plans.rollback(plan, width), "", *plans.effects(plan, width), ""]
    lines += [plans.requests(plan), "", *plans.checks(plan, width), *plans.faults(plan, width)]
    rows = plan.rows("rows")
    if rows:
        lines += ["", [(f"{'SETTING':<20} {'VALUE':<18} {'FROM':<22} REASON", "title")]]
    for row in rows:
        told = f"{fit(row.text('name', '?'), 20)} {fit(row.text('value', '-'), 18)} {fit(row.text('provenance'), 22)} "
        lines.append(fit(told + row.text("reason"), width).rstrip())
    return lines
