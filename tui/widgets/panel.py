"""A framed part of a screen: a title, words at the right of it, lines below. Not here: what the lines say."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content, Span
from textual.geometry import Offset
from textual.strip import Strip
from textual.widget import Widget

from tui.keymap import bind
from tui.looks import Looks
from tui.widgets.painting import changed_regions
from tui.words import ascii_only, plain

if TYPE_CHECKING:
    from textual.app import App

Line = str | Text | Sequence[tuple[str, str]]
MOST_LINES = 20_000


def looks_of(app: "App[object]") -> Looks:
    """The looks of the program; a fair default in an app of another kind."""
    looks = getattr(app, "looks", None)
    return looks if isinstance(looks, Looks) else Looks()


class Titled(Widget):
    """Mix this into any widget that has a border: title on its left, words on its right, STALE among them.

    `caption(title, right)` sets them; give one of them, and the other stays.
    """

    _title = ""
    _right = ""
    _stale = ""

    def on_mount(self) -> None:
        self.add_class("titled")
        self._draw_title()

    def caption(self, title: str | None = None, right: str | None = None) -> None:
        """Change the title, the words at the right, or both."""
        before = (self._title, self._right)
        self._title = self._title if title is None else plain(title)
        self._right = self._right if right is None else plain(right)
        if before != (self._title, self._right):
            self._draw_title()

    def mark_stale(self, words: str) -> None:
        """Show that the values below are old; empty words take it back."""
        if words != self._stale:
            self._stale = words
            self._draw_title()

    def redress(self) -> None:
        """Signs or colours have changed."""
        self._draw_title()
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw_title()

    def on_focus(self) -> None:
        self._draw_title()

    def on_blur(self) -> None:
        self._draw_title()

    def strip(self, line: Text) -> Strip:
        """A line as `render_line` gives it: cut or filled to the width inside."""
        width, line = self.size.width, line.copy()
        line.truncate(width, overflow="crop", pad=True)
        return Strip(line.render(self.app.console), width).apply_style(self.rich_style)

    def _draw_title(self) -> None:
        """Textual knows one title a border; so the title is as wide as the border, with the line itself between."""
        width = self.outer_size.width - 6
        if width < 4 or not self.is_attached:
            return
        looks = looks_of(self.app)
        left, right = self._title, "  ".join(filter(None, (self._stale, self._right)))
        if looks.ascii:
            left, right = ascii_only(left), ascii_only(right)
        if len(left) > width:
            left = left[: width - 1] + looks.more
        if len(left) + len(right) + 3 > width:
            right = self._stale if self._stale and len(left) + len(self._stale) + 3 <= width else ""
        # Without words at the right Textual draws the rest of the line itself, up to the corner.
        gap = width - len(left) - len(right)
        middle = f" {looks.rule * (gap - 2)} " if right else ""
        text = f"{left}{middle}{right}"
        rule = Span(len(left), len(left) + len(middle), "$border-rest not bold not reverse")
        if self.has_focus or self.has_focus_within:
            rule = Span(rule.start, rule.end, "$border-focus not bold not reverse")
        self.border_title = Content(text, spans=[rule])


class Panel(Titled, can_focus=True):
    """Lines of text in a frame: cut to its width, moved with the arrows when they do not fit its height."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "Down", show=False),
        Binding("up", "move(-1)", "Up", show=False),
        bind("list.down", "move(1)", "Down", show=False),
        bind("list.up", "move(-1)", "Up", show=False),
        bind("list.top", "move(-100000)", "Top", show=False),
        bind("list.bottom", "move(100000)", "End", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home", "move(-100000)", "Top", show=False),
        Binding("end", "move(100000)", "End", show=False),
    ]

    def __init__(self, title: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._title = title
        self._lines: list[Text] = []
        self._top = 0

    def show(self, lines: Iterable[Line], title: str | None = None, right: str | None = None) -> None:
        """Replace the lines; only what differs is painted. Markup is never read."""
        looks = looks_of(self.app)
        new = [painted(line, looks) for line in list(lines)[:MOST_LINES]]
        self.caption(title, right)
        old, top, self._lines = self._lines, self._top, new
        self._move_to(self._top)
        if len(old) != len(new) or top != self._top:
            self.refresh()
        elif regions := changed_regions(old, new, self.size.width):
            self.refresh(*(region.translate(Offset(0, -top)) for region in regions))

    @property
    def lines(self) -> list[str]:
        """What it says, without styles."""
        return [line.plain for line in self._lines]

    def copy_text(self) -> str:
        """What `y` copies."""
        return "\n".join(line.rstrip() for line in self.lines)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        index = self._top + y
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[index]
        below = len(self._lines) - index - 1
        if y == self.size.height - 1 and below and y:
            looks = looks_of(self.app)
            line = Text(f"{looks.more} {below + 1} more lines".ljust(width)[:width], style=looks.style("dim"))
        return self.strip(line)

    def action_move(self, n: int) -> None:
        self._move_to(self._top + n)
        self.refresh()

    def action_page(self, n: int) -> None:
        self.action_move(n * max(self.size.height - 1, 1))

    def on_resize(self, event: events.Resize) -> None:
        self._move_to(self._top)

    def _move_to(self, top: int) -> None:
        self._top = max(0, min(top, len(self._lines) - max(self.size.height, 1)))


def painted(line: Line, looks: Looks) -> Text:
    """One line in the looks of the program: foreign signs made safe, and plain where only plain signs are shown."""
    if isinstance(line, Text):
        text = line
    elif isinstance(line, str):
        text = Text(plain(line))
    else:
        text = looks.line(*((plain(words), meaning) for words, meaning in line))
    if looks.ascii and not text.plain.isascii():
        text = text.copy()
        text.plain = ascii_only(text.plain)
    text.end = ""
    return text


def painted_lines(lines: Iterable[Line], looks: Looks) -> Text:
    """Lines as one text, for a Static."""
    return Text("\n").join(painted(line, looks) for line in lines)
