"""The one question before any swap: what it takes, what it does, what if it fails. Not here: asking the server (flows).

It opens on Cancel. Its plan is at most ten minutes old when it is answered: an older one is asked for anew, shown, and
has to be answered again.
"""

import time
from collections.abc import Awaitable, Callable
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input

from tui.client import ClientError
from tui.dialogs.base import Choice, Lines
from tui.dialogs.scrolled import Body, ScrolledDialog
from tui.looks import Looks
from tui.panels import plan as plans
from tui.panels import split
from tui.panels.pieces import Line, marked, wrapped
from tui.snap import Facts
from tui.units import percent, size
from tui.widgets.panel import looks_of
from tui.work import work

OLD_S = 600.0
TALL = 30


class Answer(NamedTuple):
    """Yes, with a note for the log and the plan that was agreed to."""

    note: str
    plan: Facts


class Review(ScrolledDialog[Answer]):
    """`plan` is the server's; `state` the newest state document; `why_not` a reason why nothing may be changed."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("swap", "Swap now"),)
    AUTO_FOCUS = "#cancel"
    below: ClassVar[int] = 2
    CSS = """
    Review .dialog { width: 96%; max-width: 94; }
    Review .buttons { margin-top: 0; }
    """

    def __init__(self, plan: Facts, state: Facts, note: str = "", why_not: str = "",
                 again: Callable[[], Awaitable[Facts]] | None = None, must_say_why: bool = False) -> None:  # fmt: skip
        super().__init__()
        self.plan = plan
        self._state = state
        self._note = note
        self._why_not = why_not
        self._again = again
        self._must_say_why = must_say_why
        self.asked_at = time.monotonic()
        self._words = ""
        old, new = state.text("profile.name", "nothing"), plan.text("name", "?")
        self.title_words = f"Review: swap {old} -> {new} rev {plan.text('rev', '?')}"

    @property
    def can_swap(self) -> bool:
        return not self._why_not and not self.plan.texts("errors") and self.plan.flag("fits") is not False

    def content(self) -> ComposeResult:
        with Body():
            yield Lines([], id="told")
        yield Input(self._note, placeholder="note for the log", id="note", max_length=200)
        yield Lines([], id="hint")

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        inner = min(94, width * 96 // 100) - 5  # the scroll bar takes a cell
        lines = told(self.plan, self._state, inner, height, looks_of(self.app))
        last = self._words or self._why_not
        lines += marked(wrapped(last, inner), "warning") if last else []
        self.query_one("#told", Lines).set_lines(lines)
        self.query_one("#swap", Choice).allow(self.can_swap)
        hint = "Cancel has the focus. To start: tab to 'Swap now', then enter."
        if not self.can_swap:
            hint = "'Swap now' is off, see above."
        elif self._must_say_why and not self._note_now:
            hint = "A note is required here: shift+tab to its line, type why, then tab to 'Swap now'."
        self.query_one("#hint", Lines).set_lines([[(hint, "dim")]])

    @property
    def _note_now(self) -> str:
        return self.query_one("#note", Input).value.strip()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._draw()

    def choose(self, choice: str) -> None:
        if not self.can_swap or (self._must_say_why and not self._note_now):
            return
        if self._again is not None and time.monotonic() - self.asked_at > OLD_S:
            work(self, self._renew, "renew", exclusive=True)
        else:
            super().choose(choice)

    async def _renew(self) -> None:
        assert self._again is not None
        try:
            self.plan, self.asked_at = await self._again(), time.monotonic()
            self._words = "The plan was over ten minutes old and was made anew: look again, then answer."
        except ClientError as error:
            self._words = f"The plan is over ten minutes old and cannot be made anew: {error.message}"
        self.query_one("#cancel", Choice).focus()
        self._draw()

    def answer(self, choice: str) -> Answer:
        return Answer(self._note_now, self.plan)


def told(plan: Facts, state: Facts, width: int, height: int, looks: Looks) -> list[Line]:
    """The body: in a tall window all of the plan, in a small one each part in a line; of no plan why there is none."""
    if not plans.is_counted(plan):
        return [plans.one_line(plan), *_faults(plan, width)]
    return _tall(plan, state, width) if height >= TALL and width >= 76 else _short(plan, state, width)


def _bars(plan: Facts, state: Facts, width: int) -> list[Line]:
    before = split.now(state)
    if before is None:
        return []
    after = split.after(before, plan)
    lines: list[Line] = []
    for name, part in (("now", before), ("after", after)):
        told_ = f" {size(part.used)}"
        lines.append([(f"{name:<6}", ""), *split.bar(part, width - 6 - 12), (told_, "")])
    return lines


def _tall(plan: Facts, state: Facts, width: int) -> list[Line]:
    before = split.now(state)
    lines: list[Line] = [f"Memory    {size(before.total)}"] if before else []
    lines += [*_bars(plan, state, width), plans.one_line(plan), ""]
    lines += [*plans.stages(plan, width), "", *plans.rollback(plan, width), ""]
    if effects := plan.texts("side_effects"):
        lines += ["Side effects", *(line for text in effects for line in wrapped(text, width, "  ")), ""]
    lines += [plans.requests(plan), _cached(plan)] if plan.has("cached") else [plans.requests(plan)]
    return lines + _faults(plan, width)


def _cached(plan: Facts) -> str:
    return f"Of the weights, {percent(plan.num('cached'))} lie in the page cache already."


def _faults(plan: Facts, width: int) -> list[Line]:
    found = plans.faults(plan, width)
    if plan.flag("fits") is False and not plan.texts("errors"):
        found = marked(wrapped(plan.text("reason", "it does not fit"), width, "x "), "bad") + found
    return found or ["Warnings: none.   Errors: none."]


def _short(plan: Facts, state: Facts, width: int) -> list[Line]:
    first, second = plans.stages_short(plan, width - 11)
    back = plan.text("rollback.name", "fallback")
    lines: list[Line] = [*_bars(plan, state, width), plans.one_line(plan)]
    lines += [f"stages     {first}", f"           {second}"]
    lines += wrapped(f"{back}: {plan.text('rollback.text', 'then fallback')}", width, "rollback   ")
    lines += wrapped(plans.requests(plan).removeprefix("Requests: "), width, "requests   ")
    # What is wrong comes before the effects, which may be scrolled to.
    lines += _faults(plan, width)
    return lines + [line for text in plan.texts("side_effects") for line in wrapped(text, width, "also       ")]
