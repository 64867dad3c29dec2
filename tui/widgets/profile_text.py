"""The text of a profile under edit: YAML colours, signs in the margin, F keys left alone. Not here: checks."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from tui.looks import Looks
from tui.widgets.panel import looks_of
from tui.words import ascii_only, plain

MARGIN = 2
# The program's screens lie on the F keys, also while somebody types; TextArea has F6 and F7 for selecting.
TAKEN = {"f6", "f7"}
# What the grammar calls a part of YAML, and the meaning it is painted with.
PAINT = {
    "yaml.field": "title", "comment": "dim", "number": "part1", "boolean": "part1", "constant.builtin": "part1",
    "string": "", "string.escape": "part3", "error": "bad", "type": "warning", "preproc": "warning",
    "punctuation.delimiter": "dim", "punctuation.bracket": "dim", "punctuation.special": "warning",
}  # fmt: skip


class ProfileText(TextArea, inherit_bindings=False):
    """`marks` are signs by line, from 1: E and !. Escape is told as `Left`, everything printable is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        binding for binding in TextArea.BINDINGS if isinstance(binding, Binding) and binding.key not in TAKEN
    ]

    class Left(Message):
        """Escape was pressed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, soft_wrap=False, tab_behavior="indent", show_line_numbers=True, theme="css")
        self.indent_width = 2
        self.cursor_blink = False
        self._marks: dict[int, str] = {}

    def on_mount(self) -> None:
        self.dress()

    def dress(self) -> None:
        """Colours of these looks, and the grammar when it is there."""
        looks = looks_of(self.app)
        theme = _theme(looks)
        self.register_theme(theme)
        self.theme = theme.name
        self.refresh()
        try:
            import tree_sitter_yaml
            from tree_sitter import Language
        except ImportError:
            return
        self.register_language("yaml", Language(tree_sitter_yaml.language()), tree_sitter_yaml.HIGHLIGHTS_QUERY)
        if self.language != "yaml":
            self.language = "yaml"

    def mark(self, marks: dict[int, str]) -> None:
        if marks != self._marks:
            self._marks = dict(marks)
            self.refresh()

    @property
    def gutter_width(self) -> int:
        return int(super().gutter_width) + MARGIN

    def render_line(self, y: int) -> Strip:
        """The line as it is, with its sign in the margin and nothing that the terminal would obey."""
        looks, strip = looks_of(self.app), super().render_line(y)
        line = y + self.scroll_offset.y + 1
        if mark := self._marks.get(line):
            meaning = "bad" if mark == "E" else "warning"
            style = Style.parse(looks.style(meaning)) if looks.style(meaning) else Style.null()
            strip = Strip.join([Strip([Segment(mark, style)]), strip.crop(1)])
        clean = ascii_only if looks.ascii else plain
        if all(clean(text) == text for text, *_ in strip):
            return strip
        return Strip([Segment(clean(text), style, control) for text, style, control in strip], strip.cell_length)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())
            return
        await super()._on_key(event)


def _theme(looks: Looks) -> TextAreaTheme:
    styles = {name: Style.parse(looks.style(meaning)) for name, meaning in PAINT.items() if looks.style(meaning)}
    return TextAreaTheme(name=f"colibri-{looks.colours}-{looks.dark}", syntax_styles=styles)
