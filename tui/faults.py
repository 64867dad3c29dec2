"""A fault of this program, kept to the screen it happened on, its traceback in a file. Not here: a service's faults.

Textual ends the whole program when a handler raises. `Shielded` catches what a handler raises before Textual sees it,
by the one private method through which every message of a widget goes; textual is pinned, and a test watches it.
"""

import asyncio
import traceback
from typing import TYPE_CHECKING, cast

from textual.message import Message
from textual.message_pump import MessagePump

from tui import papers
from tui.words import plain

if TYPE_CHECKING:
    from tui.app import ColibriApp


class Fault:
    """What went wrong, in one line, and the file with the rest."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.error = error
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" at {last[0].filename.rsplit('/', 1)[-1]}:{last[0].lineno}" if last else ""
        self.words = plain(f"{type(error).__name__}: {error}{place}", 300)
        text = f"{where}\n\n" + "".join(traceback.format_exception(error))
        try:
            self.file = str(papers.keep("fault", text))
        except OSError as full:
            self.file = f"no file, {full.strerror or full}"

    def lines(self) -> list[str]:
        """For the panel that takes the place of the screen."""
        return [
            "This panel failed; the rest of the program goes on.", "", self.words, f"details: {self.file}", "",
            "r tries again; any other screen is one key away. Please report it with the file.",
        ]  # fmt: skip


class Shielded(MessagePump):
    """Mix it in before a screen: what its handlers raise becomes a fault of that screen."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            cast("ColibriApp", self.app).fault(error, self)
