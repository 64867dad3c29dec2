"""The keys that work on the screen it was asked from, what the words mean, what is known of this terminal.

Not here: what a key does. The keys are read from the live bindings, so they cannot be wrong.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from tui.commands import COMMANDS
from tui.config import user_file
from tui.keymap import bind
from tui.names import MODES
from tui.panels.help import WORDS, Entry, chosen, commands, key_lines, pairs
from tui.panels.picture import Part, cut
from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Panel

PAGES = ("keys", "words", "terminal")
TITLES = {"everywhere": "Everywhere", "here": "This screen", "words": "Words and signs", "commands": "Command line",
          "terminal": "This terminal"}  # fmt: skip
EVERYWHERE = ("app", "nav", "link")  # families of binding ids


class HelpScreen(LiveScreen):
    """Three columns; at 80 columns three pages, at 60 one panel after the other."""

    tab: ClassVar[str] = "help"
    FILTERS: ClassVar[bool] = True
    AUTO_FOCUS = "#everywhere"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("app.back", "back", "Close"),
        bind("app.next_panel", "next_panel(1)", "Topic"),
        bind("list.filter", "open_filter", "Find a key", priority=True),
        bind("app.write", "write_help", "Write help.txt"),
    ]
    CSS = """
    HelpScreen .titled { padding: 0 1; }
    HelpScreen Vertical { width: 1fr; }
    HelpScreen #here { height: 3fr; }
    HelpScreen #commands { height: 4fr; }
    HelpScreen #words { height: 24; }
    HelpScreen.-short #words, HelpScreen.-flat #words { height: 1fr; }
    HelpScreen.-narrow #words, HelpScreen.-narrow #here, HelpScreen.-narrow #commands { height: 1fr; }
    HelpScreen.-narrow.-keys #first, HelpScreen.-narrow.-words #third { width: 42; }
    HelpScreen.-narrow.-keys #commands, HelpScreen.-narrow.-keys #third { display: none; }
    HelpScreen.-narrow.-words #first, HelpScreen.-narrow.-words #here,
    HelpScreen.-narrow.-words #terminal { display: none; }
    HelpScreen.-narrow.-terminal #first, HelpScreen.-narrow.-terminal #second,
    HelpScreen.-narrow.-terminal #words { display: none; }
    HelpScreen #body .-zoom-path { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._page = 0
        self._wanted = ""

    def body(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="first"):
                yield Panel(TITLES["everywhere"], id="everywhere")
            with Vertical(id="second"):
                yield Panel(TITLES["here"], id="here")
                yield Panel(TITLES["commands"], id="commands")
            with Vertical(id="third"):
                yield Panel(TITLES["words"], id="words")
                yield Panel(TITLES["terminal"], id="terminal")

    @property
    def origin(self) -> Screen[Any] | None:
        """The screen that help was asked from."""
        return self.program.help_from

    def show(self, snap: Snap) -> None:
        for i, page in enumerate(PAGES):
            self.set_class(i == self._page, f"-{page}")
        right = f"{self._page + 1}/{len(PAGES)}" if self._has_pages() else ""
        for name in TITLES:
            panel = self.query_one(f"#{name}", Panel)
            width, height = panel.size
            looks, lines = self.program.looks, self._lines(name, snap, max(width, 20), max(height, 5))
            here = f": {self._where()}" if name == "here" else ""
            shown = [cut(looks.line(*parts), max(width, 1), looks.more) for parts in lines]
            panel.show(shown, f"{TITLES[name]}{here}", right)
            panel.mark_stale("")

    def _where(self) -> str:
        tab = getattr(self.origin, "tab", "") or "dialog"
        return str(tab).capitalize()

    def _has_pages(self) -> bool:
        return self.has_class("-narrow") and self._zoomed is None

    # What it says

    def entries(self) -> tuple[list[Entry], list[Entry]]:
        """Each description among that screen's bindings once, with all its keys: the program's, and its own."""
        found: dict[str, list[ActiveBinding]] = {}
        for active in self.origin.active_bindings.values() if self.origin else ():
            if active.binding.description:
                found.setdefault(active.binding.description, []).append(active)
        here = {words: group for words, group in found.items() if any(_is_own(each) for each in group)}
        return self._grouped({words: found[words] for words in found if words not in here}), self._grouped(here)

    def _grouped(self, groups: Mapping[str, list[ActiveBinding]]) -> list[Entry]:
        found = []
        for group in groups.values():
            _node, binding, is_on, _tip = group[0]
            # No terminal sends the super key; Textual binds it for its web page.
            typed = [each.binding for each in group if not each.binding.key.startswith("super+")]
            keys = " ".join(dict.fromkeys(map(self.program.get_key_display, typed or [binding])))
            found.append(Entry(keys, binding.description, binding.tooltip, is_on))
        return found

    def _lines(self, name: str, snap: Snap, width: int, height: int) -> list[list[Part]]:
        if name in ("everywhere", "here"):
            everywhere, here = self.entries()
            found = chosen(everywhere if name == "everywhere" else here, self._wanted)
            lines = key_lines(found, width, height)
            return lines or [[("no key with these words" if self._wanted else "no keys of its own", "dim")]]
        if name == "words":
            return pairs(WORDS if height >= len(WORDS) else [pair for pair in WORDS if pair[0]], 10)
        if name == "commands":
            rows = {word: (c.follows, c.help) for word, c in COMMANDS.items() if word == "logs" or word not in MODES}
            return [*commands(rows, width), [(f":{MODES[0]} .. :{MODES[-1]}", "strong"), "  a screen"]]
        return pairs(self._terminal(snap, width - 9), 8)

    def _terminal(self, snap: Snap, width: int) -> list[tuple[str, str]]:
        """What this program found out: half of every question about how it looks."""
        looks, program = self.program.looks, self.program
        term, more = os.environ.get("TERM", "-"), os.environ.get("COLORTERM", "")
        path = str(user_file()).replace(os.path.expanduser("~"), "~", 1)
        signs = "plain signs" if looks.ascii else "box signs"
        return [
            ("Terminal", f"{term} {more}".rstrip() + f"  {program.size.width}x{program.size.height}"),
            ("Looks", f"{looks.colours} colours, {signs}"),
            ("Theme", f"{program.theme}, mouse {'on' if program.config['mouse'] else 'off'}"),
            ("Config", path if len(path) <= width else f"{looks.more}{path[1 - width :]}"),
            ("Service", snap.link.url),
            ("Version", f"{snap.text('version', '-')}, admin API {snap.text('api', '-')}"),
        ]

    # Keys

    def action_next_panel(self, step: int) -> None:
        if not self._has_pages():
            super().action_next_panel(step)
            return
        self._page = (self._page + step) % len(PAGES)
        self.apply()
        self.call_after_refresh(self._focus_page)

    def _focus_page(self) -> None:
        """The first panel of the page, so that it is scrolled and copied."""
        if first := next((panel for panel in self.panels() if panel.region), None):
            first.focus()
        self.apply()

    def filter(self, text: str) -> None:
        """`/` finds a key by its words."""
        self._wanted = text
        self.apply()

    def action_write_help(self) -> None:
        looks, parts = self.program.looks, []
        for name in TITLES:
            lines = [looks.line(*line).plain.rstrip() for line in self._lines(name, self.program.snap, 100, 1000)]
            parts.append("\n".join([TITLES[name], "", *lines, ""]))
        if path := self.program.keep("help", "\n".join(parts)):
            self.notify(f"written to {path}", markup=False)


def _is_own(active: ActiveBinding) -> bool:
    """Whether a key belongs to the screen or a panel of it, not to the program; Textual's own have no id."""
    return (active.binding.id or EVERYWHERE[0]).split(".")[0] not in EVERYWHERE
