"""Every key by the id that a user's file may change it with. Not here: what a key does (the screens' actions).

Lower case is harmless or asks; nothing that destroys lies on ctrl; no alt keys, which terminals send in many ways.
"""

from collections.abc import Mapping

from textual.binding import Binding
from textual.keys import _character_to_key

from tui.names import MODES, hint

__all__ = ["KEYS", "MODES", "SHORT_TABS", "TABS", "bind", "checked"]

TABS = ("Dash", "Profiles", "Queue", "Batch", "Memory", "Bench", "Logs", "Chat")
SHORT_TABS = ("Dash", "Prof", "Queue", "Batch", "Mem", "Bench", "Logs", "Chat")

KEYS: Mapping[str, str] = {
    "nav.1": "1,f9", "nav.2": "2,f2", "nav.3": "3,f3", "nav.4": "4,f4", "nav.5": "5,f5", "nav.6": "6,f6",
    "nav.7": "7,f7", "nav.8": "8,f8",
    "app.help": "question_mark,f1", "app.command": "colon", "app.command_typing": "ctrl+p",
    "app.back": "escape", "app.quit": "q", "app.quit_now": "ctrl+q", "app.swap": "s", "app.pause": "p",
    "app.slower": "plus", "app.faster": "minus",
    "app.zoom": "z", "app.copy": "y", "app.write": "w", "app.refresh": "ctrl+r", "app.redraw": "ctrl+l",
    "app.theme": "T", "app.suspend": "ctrl+z", "app.next_panel": "tab", "app.previous_panel": "shift+tab",
    "link.retry": "r", "link.start": "S",
    "list.filter": "slash", "list.next": "n", "list.previous": "N", "list.down": "j", "list.up": "k",
    "list.page_down": "space,pagedown", "list.page_up": "b,pageup", "list.top": "g", "list.bottom": "G",
    "list.open": "enter", "list.sort": "o",
    "prof.edit": "e", "prof.diff": "d", "prof.plan": "m", "prof.clone": "c", "prof.add": "a", "prof.validate": "v",
    "prof.delete": "D",
    "edit.save": "ctrl+s,ctrl+o", "edit.diff": "ctrl+t", "edit.apply": "ctrl+r", "edit.problem": "ctrl+g",
    "diff.unified": "u", "diff.next": "n", "diff.previous": "N", "diff.changes": "a",
    "swap.background": "b", "swap.abort": "A", "swap.report": "y", "swap.close": "enter", "swap.logs": "l",
    "swap.retry": "r", "swap.edit": "e",
    "logs.follow": "f", "logs.level": "l", "logs.source": "c", "logs.time": "t", "logs.wrap": "W", "logs.mark": "m",
}  # fmt: skip


def bind(id: str, action: str, description: str = "", *, show: bool = True, keys: str = "", tooltip: str = "",
         priority: bool = False) -> Binding:  # fmt: skip
    """The binding of that id on its key; KeyError for an id that the table does not have."""
    return Binding(keys or KEYS[id], action, description, show=show, id=id, tooltip=tooltip, priority=priority)


# Keys of a small row of families act together; a key may not be given to two of one family, or of it and `app`, `nav`.
EVERYWHERE = ("nav", "app")


def checked(wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The part of a user's keymap that can hold, its keys as Textual spells them, and what is wrong with the rest."""
    good: dict[str, str] = {}
    problems = []
    for id, text in wanted.items():
        keys = [_spelt(key.strip()) for key in text.split(",")]
        if id not in KEYS:
            problems.append(f"keymap: there is no '{id}'{hint(id, KEYS)}")
        elif not all(keys):
            problems.append(f"keymap: {id} is '{text}'; it should be keys such as x, f10 or ctrl+u")
        else:
            good[id] = ",".join(keys)
    for id in list(good):
        family = id.split(".")[0]
        for other, keys_of_other in ({**KEYS, **good}).items():
            near = other.split(".")[0]
            if other != id and (near in EVERYWHERE or family in EVERYWHERE or near == family):
                both = set(good.get(id, "").split(",")) & set(keys_of_other.split(","))
                if both and id in good:
                    problems.append(f"keymap: '{min(both)}' of {id} is the key of {other} already")
                    del good[id]
    return good, problems


def _spelt(key: str) -> str:
    """`?` is question_mark to Textual; a name that cannot be a key gives an empty string."""
    *before, last = key.split("+") if key != "+" else [key]
    if not last or any(word not in ("ctrl", "shift") for word in before) or not last.isprintable() or " " in last:
        return ""
    return "+".join([*before, _character_to_key(last) if len(last) == 1 else last])
