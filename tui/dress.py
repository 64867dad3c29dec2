"""How the program is dressed: theme, looks, filters, the words for keys. Not here: the looks themselves (looks.py)."""

import re
from dataclasses import replace
from weakref import WeakSet

from textual.app import App
from textual.binding import Binding
from textual.filter import LineFilter, NoColor
from textual.signal import Signal

from tui.looks import Looks
from tui.names import hint
from tui.plain_filter import PlainSigns
from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.theme import OWN, first_theme

KEY_WORDS = {"enter": "enter", "escape": "esc", "tab": "tab", "shift+tab": "shift+tab", "space": "space",
             "up": "up", "down": "down", "left": "left", "right": "right", "home": "home", "end": "end",
             "pageup": "pgup", "pagedown": "pgdn", "backspace": "backspace", "delete": "del"}  # fmt: skip


class Dress(App[int]):
    """Mixed into the program, which sets `looks` before it calls `put_on`."""

    looks: Looks
    snap: Snap
    snap_signal: Signal[Snap]
    live: WeakSet[LiveScreen]

    def put_on(self) -> None:
        """The first theme, and what the tier asks for."""
        for theme in OWN:
            self.register_theme(theme)
        self._first_colours = self.looks.colours
        self._no_colour, self._plain_signs = NoColor(), PlainSigns()
        self.no_color = self.looks.mono
        self.theme = first_theme(self.looks.colours)
        self.set_class(self.looks.ascii, "-ascii")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What theme.tcss asks for and a theme of Textual does not know."""
        theme = self.current_theme
        return {"border-rest": "#7A8494", "border-focus": theme.primary, "title": theme.foreground or theme.primary}

    def get_line_filters(self) -> list[LineFilter]:
        """Nothing leaves that the tier forbids, whatever a widget asked for: no colour in mono, no sign above 0x7e."""
        mono = [self._no_colour] if self.looks.mono else []
        return [*super().get_line_filters(), *mono, *([self._plain_signs] if self.looks.ascii else [])]

    def get_key_display(self, binding: Binding) -> str:
        if re.fullmatch(r"f\d+", binding.key):
            return binding.key.upper()
        return binding.key_display or KEY_WORDS.get(binding.key) or super().get_key_display(binding)

    def use_theme(self, name: str) -> str:
        """Take a theme; what is wrong with the name, or an empty string."""
        if self.looks.colours != "full" and name not in ("colibri-16", "ansi-dark", "ansi-light"):
            return f"this terminal has {self.looks.colours} colours; themes need 256"
        if name not in self.available_themes:
            return f"there is no theme '{name}'{hint(name, self.available_themes)}"
        self.theme = name
        self.use_looks(dark=self.current_theme.dark)
        return ""

    def use_looks(self, *, ascii: bool | None = None, mono: bool | None = None, dark: bool | None = None) -> None:
        """Change signs or colours while running; everything is painted anew."""
        before = self.looks
        if ascii is not None:
            self.looks = replace(self.looks, ascii=ascii)
        if dark is not None:
            self.looks = replace(self.looks, dark=dark)
        if mono is not None and mono != self.looks.mono:
            # Back to what the terminal has; one that began without colours is trusted with the sixteen.
            colours = "16" if self._first_colours == "mono" else self._first_colours
            self.looks = replace(self.looks, colours="mono" if mono else colours)
            self.no_color = mono
            self.theme = first_theme(self.looks.colours)
        if self.looks != before and self.live:
            self.set_class(self.looks.ascii, "-ascii")
            self.refresh_css(animate=False)
            for screen in list(self.live):
                if screen.display:  # False of one that was just closed: it loses its widgets
                    screen.redress()
            self.snap_signal.publish(self.snap)
