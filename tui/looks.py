"""Signs and styles by meaning, for each kind of terminal. Not here: which kind this one is (tier.py), Textual's themes.

A sign or a word always says what a colour says, so that nothing is lost where there are no colours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text

Colours = Literal["full", "16", "mono"]

RAMP = " .:-=+*#%@"
BLOCKS = " ▁▂▃▄▅▆▇█"
SIGNS = {"good": "ok", "working": ">>", "warning": "!", "bad": "x"}

# Okabe and Ito's colours: they stay apart for the common kinds of colour blindness. On white they are darkened until
# each has a contrast of 4.5 to the ground.
DARK: Mapping[str, str] = {
    "good": "#56B4E9", "working": "#F0E442", "warning": "#E69F00", "bad": "bold #F0752A", "dim": "#8A94A6",
    "strong": "bold #FFFFFF", "title": "bold #C9D1D9", "cursor": "reverse",
    "state-good": "bold #0B0E14 on #56B4E9", "state-working": "bold #0B0E14 on #F0E442",
    "state-warning": "bold #0B0E14 on #E69F00", "state-bad": "bold #FFFFFF on #B34A00",
    "part1": "#56B4E9", "part2": "#F0E442", "part3": "#CC79A7", "part4": "#8A94A6", "part5": "#E69F00",
}  # fmt: skip
LIGHT: Mapping[str, str] = {
    "good": "#0072B2", "working": "#7A6A00", "warning": "#9A5B00", "bad": "bold #A83A00", "dim": "#5B6472",
    "strong": "bold #000000", "title": "bold #24292F", "cursor": "reverse",
    "state-good": "bold #FFFFFF on #0072B2", "state-working": "bold #000000 on #F0E442",
    "state-warning": "bold #000000 on #E69F00", "state-bad": "bold #FFFFFF on #A83A00",
    "part1": "#0072B2", "part2": "#7A6A00", "part3": "#9B3F78", "part4": "#5B6472", "part5": "#9A5B00",
}  # fmt: skip
SIXTEEN: Mapping[str, str] = {
    "good": "bright_cyan", "working": "bright_yellow", "warning": "yellow", "bad": "bold bright_red", "dim": "",
    "strong": "bold", "title": "bold", "cursor": "reverse",
    "state-good": "black on bright_cyan", "state-working": "black on bright_yellow",
    "state-warning": "black on yellow", "state-bad": "bold bright_white on red",
    "part1": "bright_cyan", "part2": "bright_yellow", "part3": "bright_magenta", "part4": "", "part5": "yellow",
}  # fmt: skip
MONO: Mapping[str, str] = {
    "good": "", "working": "bold", "warning": "underline", "bad": "reverse", "dim": "", "strong": "bold",
    "title": "bold", "cursor": "reverse", "state-good": "", "state-working": "bold", "state-warning": "underline",
    "state-bad": "reverse", "part1": "", "part2": "", "part3": "", "part4": "", "part5": "",
}  # fmt: skip


@dataclass(frozen=True)
class Looks:
    """How one terminal is drawn on: `colours` full, 16 or mono; `ascii` for 0x20..0x7e only; `dark` ground or light."""

    colours: Colours = "full"
    ascii: bool = False
    dark: bool = True
    palette: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def mono(self) -> bool:
        """Whether only reverse, bold and underline may be used."""
        return self.colours == "mono"

    @property
    def rule(self) -> str:
        """The sign that a horizontal line is made of."""
        return "-" if self.ascii else "─"

    @property
    def more(self) -> str:
        """What stands where a text was cut."""
        return "~" if self.ascii else "…"

    def style(self, meaning: str) -> str:
        """The style of a meaning as rich spells it; an unknown meaning has none."""
        table = MONO if self.mono else SIXTEEN if self.colours == "16" else DARK if self.dark else LIGHT
        return self.palette.get(meaning, table.get(meaning, ""))

    def mark(self, text: str, meaning: str) -> Text:
        """The text in the style of a meaning."""
        return Text(text, style=self.style(meaning), no_wrap=True, end="")

    def sign(self, meaning: str) -> str:
        """The sign that says the same as the colour: ok, >>, ! or x."""
        return SIGNS.get(meaning, "")

    def line(self, *parts: str | tuple[str, str]) -> Text:
        """One line of parts: plain text, or text with a meaning."""
        line = Text(no_wrap=True, end="")
        for part in parts:
            if isinstance(part, tuple):
                line.append(part[0], style=self.style(part[1]))
            else:
                line.append(part)
        return line

    def bar(self, part: float | None, whole: float | None, width: int) -> str:
        """A filled bar in brackets, `width` cells in all; the number belongs beside it."""
        inside = max(width - 2, 0)
        share = min(max(part / whole, 0.0), 1.0) if part is not None and whole else 0.0
        full = round(share * inside)
        if 0 < share < 1 and inside > 1:
            full = min(max(full, 1), inside - 1)  # begun is not empty, nearly done is not full
        return "[" + ("#" if self.ascii else "█") * full + ("-" if self.ascii else "░") * (inside - full) + "]"

    def spark(self, values: Sequence[float], width: int, top: float | None = None) -> str:
        """The last `width` numbers as a row of heights, from 0 to the largest; a gap where there are no values."""
        steps = RAMP if self.ascii else BLOCKS
        last = list(values)[-width:] if width > 0 else []
        most = top if top else max(last, default=0.0)
        signs = [steps[self._step(v, most, len(steps))] for v in last]
        return " " * (width - len(signs)) + "".join(signs)

    @staticmethod
    def _step(value: float, most: float, n: int) -> int:
        if most <= 0 or value <= 0:
            return 0
        return min(max(round(value / most * (n - 1)), 1), n - 1)
