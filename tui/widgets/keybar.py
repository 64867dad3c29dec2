"""The last line of every screen: the keys that work now, those that are off in ( ). Not here: what the keys do.

Textual's Footer leaks a widget for each key at each refresh of the bindings (Textual #6666); this is a line of text.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget

from tui.looks import Looks
from tui.widgets.panel import looks_of
from tui.words import ascii_only

if TYPE_CHECKING:
    from textual.screen import Screen

FIRST = ("link.retry", "link.start")  # what to do about a banner
COMMON = ("app.back", "app.swap", "app.pause", "list.filter", "app.zoom", "app.copy", "app.write")  # after its own keys
LAST = ("app.help", "app.quit")  # stay, however narrow the window is


class Key(NamedTuple):
    """One key as the line shows it."""

    id: str
    key: str
    words: str
    is_on: bool

    @property
    def text(self) -> str:
        return f"{self.key} {self.words}" if self.is_on else f"({self.key} {self.words})"


def keys_of(screen: "Screen[object]") -> list[Key]:
    """The shown keys of a screen: its own first, then the program's; one for each action."""
    app = screen.app
    describe = getattr(app, "describe", None)
    seen: set[str] = set()
    found = []
    for _node, binding, is_on, _tip in screen.active_bindings.values():
        if binding.show and binding.description and binding.action not in seen:
            seen.add(binding.action)
            words = describe(binding) if describe else binding.description
            found.append(Key(binding.id or binding.action, app.get_key_display(binding), words, is_on))
    return sorted(found, key=lambda key: _place(key.id))  # the order within a place stays


def _place(id: str) -> int:
    if id in FIRST:
        return 0
    return 2 + COMMON.index(id) if id in COMMON else 99 if id in LAST else 1


def key_text(keys: Iterable[Key], looks: Looks, width: int) -> Text:
    """As many keys as fit; help and quit always."""
    every = list(keys)
    last = [key for key in every if key.id in LAST]
    first = [key for key in every if key.id not in LAST]
    room = width - 1 - sum(cell_len(key.text) + 2 for key in last)
    shown = []
    for key in first:
        room -= cell_len(key.text) + 2
        if room < 0:
            break
        shown.append(key)
    line = Text(" ", no_wrap=True, end="")
    for key in [*shown, *last]:
        if key.is_on:
            line.append(key.key, style=looks.style("strong"))
            line.append(f" {key.words}")
        else:
            line.append(key.text, style=looks.style("dim"))
        line.append("  ")
    if looks.ascii:
        line.plain = ascii_only(line.plain)
    line.truncate(width, pad=True)
    return line


class KeyBar(Widget):
    """One line that follows the screen's bindings; `say` puts words in their place for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._words = ""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self.refresh())
        self.call_after_refresh(self.refresh)

    def say(self, words: str) -> None:
        """Words instead of keys, such as a countdown; empty words bring the keys back."""
        if words != self._words:
            self._words = words
            self.refresh()

    def render(self) -> Text:
        looks = looks_of(self.app)
        if self._words:
            return looks.mark(f" {self._words}".ljust(self.size.width)[: self.size.width], "warning")
        return key_text(keys_of(self.screen), looks, self.size.width)
