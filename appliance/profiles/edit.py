"""Single values of a profile's text changed in place: every other byte stays, comments above all. Not here: checking.

The tree knows where each value begins and ends, so a change replaces those characters and nothing else. A key that is
not there takes the place of its example (`#key: value`), else it goes to the end of its group. A loader that dumps
again (ruamel's round trip too) would fold long lines and indent lists its own way.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from appliance.profiles.problems import BadProfile, errors
from appliance.profiles.schema import GROUPS, KEYS, path_of
from appliance.profiles.strict import Entry, Group, Items, Node, Refused, Scalar, read
from appliance.profiles.values import NULLS, is_other_elsewhere
from engine.errors import UsageError

# Text that needs no quotes: nothing in it is a sign of YAML, nothing at its edges is lost. In brackets a comma is one.
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+,;?!()' -]*(?<! )")
_PLAIN_IN_BRACKETS = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+ -]*(?<! )")


def set_values(text: str, changes: Mapping[str, Any]) -> str:
    """`text` with each path (`ctx_size`, `sampling.temp`) set to its value; None makes the line a comment.

    The result may still be wrong in what it says (check.py tells). Raises BadProfile when the text cannot be read to
    its end, UsageError for a path that is no key.
    """
    for path, value in changes.items():
        text = _set(text, path, value)
    return text


def rendered(value: Any, *, in_brackets: bool = False) -> str:
    """A value as it is written: numbers plainly, text in quotes only where it needs them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(rendered(item, in_brackets=True) for item in value)}]"
    if isinstance(value, str):
        plain = _PLAIN_IN_BRACKETS if in_brackets else _PLAIN
        is_safe = plain.fullmatch(value) and not is_other_elsewhere(value) and value not in NULLS
        return value if is_safe else json.dumps(value, ensure_ascii=False)
    return repr(value)


def _set(text: str, path: str, value: Any) -> str:
    group, _, key = path.rpartition(".")
    if path not in ("name", "summary") and (key not in KEYS or path_of(key) != path):
        raise UsageError(f"'{path[:80]}' is no key of a profile (docs/profile.md lists them)", param=path[:80])
    document = read(text)
    if document.root is None or not document.is_whole or errors(document.problems):
        raise BadProfile.of("profile", document.problems)
    body, mark = document.text, text[: len(text) - len(document.text)]
    root = document.root
    entry = root.entries.get(group or key)
    home: Group | None = root
    if group:
        home = entry.value if entry and isinstance(entry.value, Group) else None
        entry = home.entries.get(key) if home else None
    if entry:
        if value is None:
            return mark + _commented(body, entry)
        return mark + _spliced(body, entry, rendered(value, in_brackets=bool(home and home.end)))
    if value is None:
        return text
    if home and home.end:
        return mark + _into_brackets(body, home, f"{key}: {rendered(value, in_brackets=True)}")
    return mark + _added(body, root, home, group, key, rendered(value))


def _spliced(text: str, entry: Entry, words: str) -> str:
    node = entry.value
    if isinstance(node, Scalar):
        start, end = node.place.start, node.place.end
        if text[start:end].endswith("\n"):  # a block of lines, `|` or `>`
            words += "\n"
        gap = "" if text[start - 1].isspace() else " "
        return f"{text[:start]}{gap}{words}{text[end:]}"
    start, end = entry.key.end, _end(node)
    if "#" in text[start:end]:
        raise UsageError("this list has comments between its lines; change it with an editor")
    return f"{text[:start]}: {words}{text[end:]}"


def _commented(text: str, entry: Entry) -> str:
    start = text.rfind("\n", 0, entry.key.start) + 1
    end = text.find("\n", _end(entry.value))
    line = text[start : len(text) if end < 0 else end]
    if text[start : entry.key.start].strip() or "\n" in line:
        raise UsageError("only a key on a line of its own can be taken out; change the file with an editor")
    at = entry.key.start
    return f"{text[:at]}#{text[at:]}"


def _into_brackets(text: str, home: Group, words: str) -> str:
    at = home.end - 1
    before = text[:at].rstrip()
    comma = "" if before.endswith(("{", ",")) else ", "
    return f"{before}{comma}{words}{text[at:]}"


def _added(text: str, root: Group, home: Group | None, group: str, key: str, words: str) -> str:
    eol = "\r\n" if "\r\n" in text else "\n"
    first, last = _span(text, root, group)
    if example := re.compile(rf"^(?P<indent> *)#{key}:.*$", re.MULTILINE).search(text, first, last):
        depth = _depth(home) if home else 2 if group else 0
        end = example.end() - (1 if example[0].endswith("\r") else 0)
        return f"{text[: example.start()]}{' ' * depth}{key}: {words}{text[end:]}"
    if group and home is None and group in root.entries:  # `group:` with nothing below it
        at = root.entries[group].value.place.end
        return f"{text[:at]}{eol}  {key}: {words}{text[at:]}"
    if home and home.entries:
        at = max(_end(entry.value) for entry in home.entries.values())
        at = len(text) if (end := text.find("\n", at - 1)) < 0 else end + 1
    else:
        at = len(text)
    gap = eol if at and not text[:at].endswith("\n") else ""
    added = f"{' ' * _depth(home)}{key}: {words}{eol}" if home else f"{group}:{eol}  {key}: {words}{eol}"
    return f"{text[:at]}{gap}{added}{text[at:]}"


def _depth(home: Group) -> int:
    return min((entry.key.col - 1 for entry in home.entries.values()), default=0)


def _span(text: str, root: Group, group: str) -> tuple[int, int]:
    """Where a group's lines begin and end; of the top level, the part before the first group."""
    starts = sorted((entry.key.start, key) for key, entry in root.entries.items())
    if not group:
        return 0, next((at for at, key in starts if key in GROUPS), len(text))
    if group not in root.entries:
        return len(text), len(text)
    first = root.entries[group].key.start
    return first, next((at for at, _ in starts if at > first), len(text))


def _end(node: Node) -> int:
    """Past the last character; of a block, past its last child's."""
    if isinstance(node, Scalar | Refused):
        return node.place.end
    if node.end:
        return node.end
    children = node.items if isinstance(node, Items) else [entry.value for entry in node.entries.values()]
    return max((_end(child) for child in children), default=node.place.end)
