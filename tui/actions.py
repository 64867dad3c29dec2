"""What the program's own keys do. Not here: the keys themselves (keymap.py), the program they act on (app.py)."""

import contextlib
import os
from typing import TYPE_CHECKING, cast

from tui import commands
from tui.client import ClientError
from tui.dialogs.command import CommandLine
from tui.snap import Facts
from tui.theme import OWN
from tui.work import work

if TYPE_CHECKING:
    from tui.app import ColibriApp


class Actions:
    """Mixed into the program; `self.program` is the program itself, typed."""

    @property
    def program(self) -> "ColibriApp":
        return cast("ColibriApp", self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "command":
            return not self.program.is_typing
        if action == "swap":
            return None if self.program.why_not() else True
        if action == "retry":
            return not self.program.snap.link.is_up
        if action == "start_again":
            if not self.program.snap.link.is_up or self.program.snap.state not in ("crashed", "stopped"):
                return False
            return None if self.program.why_not() else True
        return True

    def action_go(self, mode: str) -> None:
        self.program.switch_mode(mode)

    def action_help(self) -> None:
        if self.program.current_mode != "help":
            self.program.help_from, self.program.before_help = self.program.screen, self.program.current_mode
            self.program.switch_mode("help")

    async def action_back(self) -> None:
        if len(self.program.screen_stack) > 1:
            self.program.pop_screen()
        elif self.program.current_mode == "help":
            self.program.switch_mode(self.program.before_help)

    def action_swap(self) -> None:
        self.program.start_swap()

    def action_start_again(self) -> None:
        self.program.start_swap(self.program.snap.profile)

    def action_retry(self) -> None:
        self.program.poller.now()

    def action_pause(self) -> None:
        self.program.pace.is_paused = not self.program.pace.is_paused
        self.program.poller.now()
        self.program.screen.refresh_bindings()
        self.program.snap_signal.publish(self.program.snap)

    def action_slower(self) -> None:
        self._step(1)

    def action_faster(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        self.program.pace.step(by)
        self.program.poller.now()
        self.program.notify(f"asking every {self.program.pace.period_s:g} s", timeout=2, markup=False)

    def action_refresh_now(self) -> None:
        self.program.poller.now()

    def action_redraw(self) -> None:
        self.program.refresh(repaint=True, layout=True)

    def action_theme(self) -> None:
        names = [theme.name for theme in OWN[:2]]
        if fault := self.program.use_theme(names[self.program.theme == names[0]]):
            self.program.notify(fault, severity="warning", markup=False)

    def action_suspend(self) -> None:
        """Only where a shell with job control can bring it back: the kernel drops the signal for everybody else."""
        if os.getpgrp() == os.getsid(0):
            self.program.notify("no shell to go back to; q quits", severity="warning", markup=False)
        else:
            self.program.action_suspend_process()

    def action_copy(self) -> None:
        copy = getattr(self.program.focused, "copy_text", None)
        self.program.copy(copy() if copy else self.program.picture(), "copy")

    def action_write(self) -> None:
        if path := self.program.keep("screen", self.program.picture()):
            self.program.notify(f"written to {path}", markup=False)

    def action_command_typing(self) -> None:
        self.action_command()

    def action_command(self) -> None:
        work(self.program, self._learn_profiles, group="names", exclusive=True)
        self._open_line()

    def _open_line(self, line: str = "", fault: str = "") -> None:
        """Without a worker between: the keys typed after `:` are on their way already."""
        self.program.push_screen(CommandLine(line, fault), self._run_line)

    def _run_line(self, typed: str | None) -> None:
        if typed is None:
            return
        try:
            commands.run(self.program, typed)
        except commands.Refused as refused:
            self._open_line(typed, str(refused))

    async def _learn_profiles(self) -> None:
        """For completions; the line is open meanwhile."""
        with contextlib.suppress(ClientError):
            names = Facts(await self.program.client.get("/admin/profiles"))
            self.program.profile_names = [row.text("name") for row in names.rows("profiles")]

    def action_help_quit(self) -> None:
        self.program.notify("q quits", timeout=2)

    def action_leave(self) -> None:
        self.program.leave()

    def action_leave_now(self) -> None:
        self.program.leave_now()
