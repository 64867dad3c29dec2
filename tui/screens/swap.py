"""The swap while it runs, and its report until somebody closes it. Not here: starting one (flows.py), the lines.

The newest picture comes with each state document; log and last engine lines are asked for beside it. All times are the
server's. What is shown survives a lost link, and a second operator sees the same.
"""

import time
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.client import ClientError
from tui.dialogs.base import Ask
from tui.flows import last_profile
from tui.keymap import bind
from tui.panels import report
from tui.panels.pieces import Line
from tui.panels.swap import Around, abort_cost, is_free_to_abort, is_on_the_way_back, right_of_title, running, title
from tui.screens.base import LiveScreen
from tui.snap import Facts, Snap
from tui.widgets.panel import Panel
from tui.work import work

LOOK_S = 0.8  # an enter that was still meant for the review must not close a report nobody has seen


class SwapScreen(LiveScreen):
    """One panel; which swap it shows is `app.swap_watch.wanted`."""

    tab: ClassVar[str] = "profiles"
    CHANGING: ClassVar[frozenset[str]] = frozenset({"abort", "retry", "start"})
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("swap.background", "background", "Background"),
        bind("swap.abort", "abort", "Abort and roll back"),
        Binding("enter", "close", "Close", id="swap.close"),
        Binding("l", "logs", "Engine log", id="swap.logs"),
        Binding("r", "retry", "Retry", id="swap.retry"),
        Binding("e", "edit", "Edit profile", id="swap.edit"),
        bind("link.start", "start", "Start again"),
        bind("swap.report", "report", "Copy report"),
        bind("app.back", "leave", "Back", show=False),
    ]
    CSS = """
    SwapScreen #body { align: center middle; }
    SwapScreen #swap { padding: 0 1; width: 104; max-width: 100%; height: 100%; max-height: 30; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._swap = Facts()
        self._last_try = 0
        self._reported_at = 0.0
        self._could_abort = False

    def body(self) -> ComposeResult:
        yield Panel("Swap", id="swap")

    @property
    def is_going(self) -> bool:
        return report.is_running(self._swap)

    @property
    def can_abort(self) -> bool:
        return self.is_going and not self._swap.flag("is_aborting") and not is_on_the_way_back(self._swap)

    # What is shown

    def show(self, snap: Snap) -> None:
        wanted = self.program.swap_watch.wanted
        if self._swap.text("id") != wanted:
            self._swap, self._reported_at = Facts(), 0.0
            self.refresh_bindings()
        if snap.link.is_up and snap.text("swap.id") == wanted and wanted:
            self._merge(snap.at("swap"))
        if wanted and snap.link.is_up and (not self._swap or self.is_going):
            work(self, partial(self._fetch, wanted), "swap")
        self._draw(snap)

    def _merge(self, brief: Facts) -> None:
        """The state document leaves out the log and the engine's lines; keep those that are known."""
        known = {key: self._swap.get(key) for key in ("log", "engine_lines")}
        self._swap = Facts({**known, **brief.raw})

    async def _fetch(self, id: str) -> None:
        self._last_try += 1
        number = self._last_try
        try:
            found = Facts(await self.program.client.get(f"/admin/swap/{id}"))
        except ClientError as error:
            if error.status and not self._swap:
                self._swap = Facts({"id": id, "state": "?", "reason": {"message": error.message}})
                self._draw(self.program.snap)
            return
        if number != self._last_try or id != self.program.swap_watch.wanted or not found:
            return
        was_running = self.is_going or not self._swap
        self._swap = found
        self._draw(self.program.snap)
        if was_running and not self.is_going:
            self.refresh_bindings()
            self.program.poller.now()

    def _draw(self, snap: Snap) -> None:
        panel, swap = self.query_one("#swap", Panel), self._swap
        if self._could_abort != self.can_abort:
            self._could_abort = self.can_abort
            self.refresh_bindings()
        width, height = panel.size.width, panel.size.height
        if not swap:
            wanted = self.program.swap_watch.wanted
            words = f"asking for swap {wanted} ..." if wanted else "No swap was looked at yet; s begins one."
            panel.show([words], "Swap", "")
            return
        now = snap.num("time")
        if self.is_going:
            limit = snap.whole("lanes.interactive.limit")
            around = Around(now if snap.link.is_up else None, limit, snap.at("memory"))
            lines = running(swap, around, width, height, self.program.looks)
            panel.show(lines, title(swap), right_of_title(swap, now, width))
        else:
            self._reported_at = self._reported_at or time.monotonic()
            panel.show(report.ended(swap, width, height), report.head(swap), right_of_title(swap, None, width))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of a running swap while it runs, those of a report when it has ended."""
        state, going = self._swap.text("state"), self.is_going
        if action == "abort":
            return super().check_action(action, parameters) if self.can_abort else False
        if action == "retry" and not (report.is_failed(self._swap) or state == "aborted"):
            return False
        if action in ("close", "retry", "edit"):
            return super().check_action(action, parameters) if self._swap and not going else False
        if action == "start":
            return super().check_action(action, parameters) if state == "crashed" else False
        if action in ("background", "zoom"):
            return going and action == "background"
        return super().check_action(action, parameters)

    def action_background(self) -> None:
        if self.is_going:
            self.notify(f"Swap {self._swap.text('id')} goes on; s shows it again.", markup=False)
        self.program.swap_watch.leave()

    def action_leave(self) -> None:
        self.action_background() if self.is_going else self.action_close()

    def action_close(self) -> None:
        if self.is_old_enough:
            self.program.swap_watch.leave()

    @property
    def is_old_enough(self) -> bool:
        """Whether the report was there long enough to be seen."""
        return time.monotonic() - self._reported_at > LOOK_S

    def action_abort(self) -> None:
        work(self, partial(self._abort, self._swap), "abort", exclusive=True)

    async def _abort(self, swap: Facts) -> None:
        id = swap.text("id")
        by = swap.text("by")
        lines: list[Line] = [f"Abort swap {id} {title(swap).partition('  ')[2]}?", "", abort_cost(swap)]
        if by and by != self.program.client.user:
            lines += ["", [(f"It was begun by {by}.", "warning")]]
        yes = "Abort" if is_free_to_abort(swap) else "Abort and roll back"
        if not await self.program.ask(Ask(f"Abort swap {id}", lines, yes)):
            return
        try:
            await self.program.client.post(f"/admin/swap/{id}/abort")
        except ClientError as error:
            self.notify(f"Not aborted: {error.message}", severity="error", markup=False)
        self.program.poller.now()

    def action_logs(self) -> None:
        self.program.action_go("logs")

    def action_retry(self) -> None:
        if name := self._swap.text("to"):
            self.program.start_swap(name, self._swap.text("note"))

    def action_edit(self) -> None:
        if name := self._swap.text("to"):
            self.program.tell_screen("profiles", "edit", [name])

    def command(self, word: str, rest: list[str]) -> bool:
        """`:report swap [ID]`: of the swap that is shown, or of another."""
        if word != "report":
            return False
        if rest:
            work(self, partial(self._report, rest[0]), "report")
        else:
            self.action_report()
        return True

    async def _report(self, id: str) -> None:
        try:
            found = Facts(await self.program.client.get(f"/admin/swap/{id}"))
        except ClientError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        self.program.copy(report.report(found, self.program.snap.text("host")), f"swap-{id}")

    def action_start(self) -> None:
        self.program.start_swap(last_profile(self.program.snap) or None, "started again after a crash")

    def action_report(self) -> None:
        if self._swap:
            text = report.report(self._swap, self.program.snap.text("host"))
            self.program.copy(text, f"swap-{self._swap.text('id')}")
