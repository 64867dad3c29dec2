"""What an answer says, field by field, and how sure it is of each. Not here: tables, reviews, whose answer it is.

An answer whose text is a JSON object has its members as fields, those of an object inside by their path with dots; any
other text is one field without a name. How sure: `colibri.confidence` of the answer, one entry per field, where the
engine has scored a closed set.
"""

import json
from dataclasses import dataclass
from typing import Any

DEPTH = 8
"""Objects inside objects that are looked into."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`confidence` is the probability of `value` among the field's options, None where it is not known."""

    field: str
    value: Any
    confidence: float | None = None
    margin: float | None = None
    runner_up: Any = None
    is_cut: bool = False


def verdicts(body: dict[str, Any]) -> list[Verdict]:
    """The fields of a completion's body; empty for a body without an answer's text."""
    content, is_cut = _content(body)
    if content is None:
        return []
    ours = body.get("colibri")
    known = ours.get("confidence") if isinstance(ours, dict) else None
    known = known if isinstance(known, dict) else {}
    return [_verdict(name, value, known.get(name), is_cut) for name, value in fields_of(content).items()]


def fields_of(content: str) -> dict[str, Any]:
    """The leaves of a JSON object, or the whole text under the empty name."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    return flat(found) if isinstance(found, dict) else {"": content.strip()}


def flat(value: dict[str, Any], path: str = "", depth: int = 0) -> dict[str, Any]:
    """The leaves by their path with dots; lists, empty objects and what lies too deep are leaves."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        here = f"{path}.{name}" if path else name
        found |= flat(inner, here, depth + 1) if isinstance(inner, dict) and inner and depth < DEPTH else {here: inner}
    return found


def put(value: dict[str, Any], path: str, leaf: Any) -> bool:
    """Set the leaf of that path, as `flat` names it; False when there is none."""
    for name, inner in value.items():
        if name == path:
            value[name] = leaf
            return True
        if isinstance(inner, dict) and path.startswith(f"{name}.") and put(inner, path[len(name) + 1 :], leaf):
            return True
    return False


def _content(body: dict[str, Any]) -> tuple[str | None, bool]:
    try:
        choice = body["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (LookupError, TypeError):
        return None, False
    return (text if isinstance(text, str) else None), choice.get("finish_reason") == "length"


def _verdict(name: str, value: Any, known: Any, is_cut: bool) -> Verdict:
    if isinstance(known, int | float) and not isinstance(known, bool):
        return Verdict(name, value, float(known), is_cut=is_cut)
    if not isinstance(known, dict):
        return Verdict(name, value, is_cut=is_cut)
    return Verdict(name, value, _number(known.get("probability")), _number(known.get("margin")),
                   known.get("runner_up"), is_cut)  # fmt: skip


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
