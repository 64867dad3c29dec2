"""Choosing a profile by name, with what the planner says of each. Not here: what is done with it."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.dialogs.base import Dialog
from tui.panels.profiles import row
from tui.snap import Facts
from tui.widgets.panel import looks_of
from tui.words import ascii_only, fit, plain


class Pick(Dialog[str]):
    """The name of the profile picked. Cancel has the focus; an arrow or j and k move into the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "into(1)", "Down", show=False),
        Binding("up,k", "into(-1)", "Up", show=False),
    ]
    AUTO_FOCUS = "#cancel"
    CSS = "Pick OptionList { height: auto; max-height: 14; }"

    def __init__(self, title: str, profiles: Sequence[Facts]) -> None:
        super().__init__()
        self.title_words = title
        self._profiles = list(profiles)

    def content(self) -> ComposeResult:
        looks = looks_of(self.app)
        options = []
        for profile in self._profiles:
            cells = row(profile)
            line = Text(no_wrap=True)
            for key, width in (("mark", 2), ("name", 16), ("fit", 6), ("state", 13)):
                words, meaning = cells[key]
                line.append(fit(words, width), style=looks.style(meaning))
            line.append(plain(profile.text("summary") or profile.text("fit_reason")))
            if looks.ascii:
                line.plain = ascii_only(line.plain)
            options.append(Option(line, id=profile.text("name", "?")))
        yield OptionList(*options, id="names", markup=False)

    def action_into(self, step: int) -> None:
        names = self.query_one("#names", OptionList)
        if not names.option_count:
            return
        if not names.has_focus:
            names.focus()
            names.highlighted = names.highlighted or 0
        elif step > 0:
            names.action_cursor_down()
        else:
            names.action_cursor_up()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.is_current:
            self.dismiss(event.option.id)
