"""A word of the file as the value that its key wants. Not here: the file's grammar (strict.py), ranges (check.py).

The key decides: `model: no` is the text "no", `temp: 1` is 1.0, `threads: 010` is refused because YAML's versions
disagree about it. What another YAML reader would take for something else is a warning that says what was taken.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import yaml

from appliance.profiles.problems import CONTROL
from appliance.profiles.schema import Takes
from appliance.profiles.strict import Group, Items, Node, Scalar

WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,19})")
NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]{0,19})(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][-+]?[0-9]{1,3})?")
_UNDERSCORED = re.compile(r"[-+]?[1-9][0-9]{0,2}(_[0-9]+)+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_OTHER_BASE = re.compile(r"[-+]?0([xX][0-9a-fA-F]{1,16}|[oO][0-7]{1,21}|[bB][01]{1,64})")
_SIXTIES = re.compile(r"[0-9]{1,5}(:[0-5]?[0-9]){1,3}")
_NOT_FINITE = re.compile(r"[-+]?\.?(nan|inf|infinity)", re.IGNORECASE)
NULLS = ("", "~", "null", "Null", "NULL")
# severity, words after the key's name and value, hint
Tell = Callable[[str, str, str], None]


class _Missing:
    """No value: it was refused, or the file says null."""


MISSING = _Missing()


def value_of(node: Node, wants: Takes, tell: Tell) -> Any:
    """The value, or MISSING after telling why (a null that merely means `unset` is MISSING without a word)."""
    if isinstance(node, Items) and wants.base == "texts":
        return _texts(node, wants, tell)
    if isinstance(node, Group | Items):
        what = "keys below it" if isinstance(node, Group) else "a list"
        tell("error", f"holds {what}; {wants.words} is expected", "")
    if not isinstance(node, Scalar):
        return MISSING
    if node.is_plain and node.text in NULLS:
        if not (wants.is_optional or wants.base == "texts"):
            tell("error", f"has no value; {wants.words} is expected, or leave the line out", "")
        return MISSING
    if wants.base == "texts":
        text = _text(node, wants, tell)
        return text if text is MISSING else tuple(word.strip() for word in text.split(",") if word.strip())
    return {"switch": _switch, "whole": _whole, "number": _number, "word": _word, "text": _text}[wants.base](
        node, wants, tell
    )


def is_other_elsewhere(text: str) -> bool:
    """Whether some YAML reader takes the plain word for a bool, a number, a date or nothing at all."""
    kind = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return str(kind) != "tag:yaml.org,2002:str" or bool(NUMBER.fullmatch(text)) or bool(_OTHER_BASE.fullmatch(text))


def _look_alike(node: Scalar, tell: Tell) -> None:
    if node.is_plain and is_other_elsewhere(node.text):
        words = f"is taken as the text '{node.text}', where other YAML readers see something else; put it in quotes"
        tell("warning", words, f'"{node.text}"')


def _text(node: Scalar, wants: Takes, tell: Tell) -> Any:
    allowed = "\n\t" if wants.has_lines else ""
    odd = next((sign for sign in CONTROL.findall(node.text) if sign not in allowed), None)
    if odd is not None:
        tell("error", f"holds the character U+{ord(odd):04X}, which is not for text; delete it", "")
        return MISSING
    _look_alike(node, tell)
    return node.text


def _texts(node: Items, wants: Takes, tell: Tell) -> Any:
    found = []
    for child in node.items:
        if isinstance(child, Scalar):
            if (text := _text(child, wants, tell)) is MISSING:
                return MISSING
            found.append(text)
        elif isinstance(child, Group | Items):
            tell("error", "holds a list or keys inside its list; a list of names is expected", "")
            return MISSING
        else:
            return MISSING
    return tuple(found)


def _word(node: Scalar, wants: Takes, tell: Tell) -> Any:
    if node.text in wants.choices:
        return node.text
    near = next((choice for choice in wants.choices if choice == node.text.lower()), "")
    return _no(node, wants, tell, f"{wants.words} is expected", near)


def _switch(node: Scalar, wants: Takes, tell: Tell) -> Any:
    if node.is_plain and node.text in ("true", "false"):
        return node.text == "true"
    meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(node.text.lower(), node.text.lower())
    return _no(node, wants, tell, "true or false is expected", meant if meant in ("true", "false") else "")


def _whole(node: Scalar, wants: Takes, tell: Tell) -> Any:
    if wants.is_auto and node.text == "auto":
        return "auto"
    if not node.is_plain:
        return _quoted(node, wants, tell, WHOLE)
    if WHOLE.fullmatch(node.text):
        return int(node.text)
    if _UNDERSCORED.fullmatch(node.text):
        value = node.text.replace("_", "")
        if len(value) <= 20:
            tell("warning", f"is '{node.text}', taken as {value}; write it without the underscores", value)
            return int(value)
    return _odd_number(node, wants, tell)


def _number(node: Scalar, wants: Takes, tell: Tell) -> Any:
    if not node.is_plain:
        return _quoted(node, wants, tell, NUMBER)
    if NUMBER.fullmatch(node.text) and math.isfinite(value := float(node.text)):
        return value
    return _odd_number(node, wants, tell)


def _quoted(node: Scalar, wants: Takes, tell: Tell, pattern: re.Pattern[str]) -> Any:
    if pattern.fullmatch(node.text):
        return _no(node, wants, tell, "text, as it stands in quotes; write it without", node.text)
    return _no(node, wants, tell, f"{wants.words} is expected", "")


def _odd_number(node: Scalar, wants: Takes, tell: Tell) -> Any:
    text = node.text
    if _OTHER_BASE.fullmatch(text):
        return _no(node, wants, tell, "numbers are decimal here", str(int(text, 0)))
    if _LEADING_ZERO.fullmatch(text):
        words = "with a zero in front it is an octal number to some YAML readers and a decimal one to others"
        return _no(node, wants, tell, words, text.replace("_", "").lstrip("+-0") or "0")
    if _SIXTIES.fullmatch(text):
        seconds = 0
        for part in text.split(":"):
            seconds = seconds * 60 + int(part)
        return _no(node, wants, tell, f"it may mean a time, or {seconds}, or text; {wants.words} is expected", "")
    if _NOT_FINITE.fullmatch(text):
        return _no(node, wants, tell, f"not a number one can count with; {wants.words} is expected", "")
    if NUMBER.fullmatch(text) and math.isfinite(value := float(text)) and value.is_integer() and abs(value) < 1e15:
        return _no(node, wants, tell, f"{wants.words} is expected", str(int(value)))
    return _no(node, wants, tell, f"{wants.words} is expected", "")


def _no(node: Scalar, wants: Takes, tell: Tell, words: str, hint: str) -> Any:
    shown = node.text if len(node.text) <= 60 else f"{node.text[:57]}..."
    tell("error", f"is '{' '.join(shown.split())}': {words}", hint)
    return MISSING
