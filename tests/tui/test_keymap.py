"""The table of keys: every id is bound, every shown binding has an id, none needs alt or what tmux takes."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode
from textual.widgets import TextArea

import tui
from tui.keymap import KEYS


def bindings() -> Iterator[tuple[type, Binding]]:
    """Those that the program's own classes declare."""
    for module in pkgutil.walk_packages(tui.__path__, "tui."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

    def below(kind: type) -> Iterator[type]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    # The text area keeps Textual's editing keys, which are nobody's to move.
    for kind in set(below(DOMNode)) - set(below(TextArea)):
        if kind.__module__.startswith("tui."):
            for binding in Binding.make_bindings(kind.__dict__.get("BINDINGS", ())):
                yield kind, binding


def test_every_id_of_the_table_is_bound_and_every_bound_id_is_in_the_table() -> None:
    used = {binding.id for _, binding in bindings() if binding.id}
    assert used == set(KEYS)


def test_what_the_key_line_shows_can_be_put_on_another_key() -> None:
    shown = {(kind.__name__, b.key) for kind, b in bindings() if b.show and b.description and not b.id}
    assert shown == set()


def test_no_key_needs_alt_and_none_takes_what_tmux_and_screen_take() -> None:
    for kind, binding in bindings():
        assert not binding.key.startswith(("alt+", "ctrl+b", "ctrl+a")), (kind, binding)
