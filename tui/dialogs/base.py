"""A question in a box: text, choices, the first focus on Cancel. Not here: any particular question."""

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.faults import Shielded
from tui.widgets.panel import Line, Titled, looks_of, painted_lines

T = TypeVar("T")


class Choice(Static, can_focus=True):
    """A word that can be chosen with enter or space."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "choose", "Choose", show=False)]

    class Chosen(Message):
        """Somebody chose `choice`."""

        def __init__(self, choice: "Choice") -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, words: str, id: str) -> None:
        super().__init__(f"[ {words} ]", id=id, markup=False)
        self._words = words

    def allow(self, is_on: bool) -> None:
        """On, or off and in ( )."""
        self.disabled = not is_on
        self.update(f"[ {self._words} ]" if is_on else f"( {self._words} )")

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self))

    def on_click(self, _event: events.Click) -> None:
        self.action_choose()


class Box(Titled, Vertical):
    """The frame of a dialog."""


class Dialog(Shielded, ModalScreen[T]):
    """Covers the screen until it is answered; escape and Cancel give None.

    It fills `content()`, names its choices beside Cancel in `CHOICES` as (id, words), and answers in `answer(id)`.
    """

    AUTO_FOCUS = "#cancel"
    title_words: str = ""
    _is_answered = False
    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = ()
    CANCEL: ClassVar[str] = "Cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("left,h", "app.focus_previous", "Previous", show=False),
        Binding("right,l", "app.focus_next", "Next", show=False),
    ]

    def content(self) -> ComposeResult:
        """The widgets above the choices."""
        yield from ()

    def answer(self, choice: str) -> T | None:
        """The dialog's result for a choice that is not Cancel."""
        return None

    def compose(self) -> ComposeResult:
        box = Box(classes="dialog titled", id="box")
        box.caption(self.title_words, f"esc {self.CANCEL}")
        with box:
            yield from self.content()
            with Horizontal(classes="buttons"):
                yield Choice(self.CANCEL, "cancel")
                for id, words in self.CHOICES:
                    yield Choice(words, id)

    def on_mount(self) -> None:
        self.query_one("#cancel", Choice).focus()

    @property
    def room(self) -> int:
        """The rows a dialog may take: the window without its first and last line."""
        return max(self.size.height - 2, 1)

    def on_choice_chosen(self, message: Choice.Chosen) -> None:
        message.stop()
        if self._is_answered:
            return  # a second enter, pressed before the first one closed the dialog
        choice = message.choice.id or "cancel"
        if choice == "cancel":
            self.dismiss(None)
        else:
            self.choose(choice)

    def choose(self, choice: str) -> None:
        """Answer with a choice and close; override it to ask more before closing."""
        self.dismiss(self.answer(choice))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close once, and only while it lies on top; anything else would close another screen."""
        if self._is_answered or not self.is_current:
            return AwaitComplete()
        self._is_answered = True
        return super().dismiss(result)


class Lines(Static):
    """Lines of a dialog in the looks of the program, markup never read."""

    def __init__(self, lines: Iterable[Line], *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._lines = list(lines)

    def on_mount(self) -> None:
        self.set_lines(self._lines)

    def set_lines(self, lines: Iterable[Line]) -> None:
        self.update(painted_lines(lines, looks_of(self.app)))


class Ask(Dialog[bool]):
    """A yes-or-no question in a few lines; True for yes."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("yes", "Yes"),)

    def __init__(self, title: str, lines: Iterable[Line], yes: str = "Yes") -> None:
        super().__init__()
        self.title_words = title
        self._lines = list(lines)
        self._yes = yes

    def content(self) -> ComposeResult:
        yield Lines(self._lines)

    def on_mount(self) -> None:
        self.query_one("#yes", Choice).update(f"[ {self._yes} ]")

    def answer(self, choice: str) -> bool | None:
        return True
