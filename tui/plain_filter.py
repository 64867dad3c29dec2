"""The last net of the plain tier: no sign above 0x7e leaves, whoever drew it. Not here: what is drawn on purpose."""

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

# Textual's own signs: cut text, frames, scroll bars, cursors.
SIGNS = {ord(sign): plain for signs, plain in (
    ("…", "~"), ("─━═╌┄", "-"), ("│┃║╎┆▏▎▍▌▐▕", "|"), ("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╔╗╚╝", "+"), ("█▓▇▆▅", "#"), ("▒░▄▃▂▁", "-"),
    ("▀▔", "-"), ("•●▪", "*"), ("→▶", ">"), ("←◀", "<"), ("↑▲", "^"), ("↓▼", "v"), ("✓✔", "x"), ("\u00a0", " "),
) for sign in signs}  # fmt: skip


class PlainSigns(LineFilter):
    """Replaces each foreign sign by a plain one, or by as many question marks as it is wide."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(plain_signs(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def plain_signs(text: str) -> str:
    """The text in 0x20..0x7e, in the same number of cells."""
    text = text.translate(SIGNS)
    return text if text.isascii() else "".join(c if c.isascii() else "?" * cell_len(c) for c in text)
