"""The grammar of a call that must come, from where the prompt has begun it. Not here: who enforces it.

It is Lark as llguidance reads it. Arguments follow the tool's own schema, so that what comes is JSON and fits.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Schemas = Mapping[str, Mapping[str, Any]]
"""Name of a tool -> the JSON schema of its arguments."""
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
ANYTHING: dict[str, Any] = {"type": "object"}
SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
TEXT = "/(.|\\n)*/"


def quoted(text: str) -> str:
    """A literal."""
    return json.dumps(text, ensure_ascii=False)


def json_calls(schemas: Schemas, head: Callable[[str], str], tail: str) -> str:
    """One call of any of the tools: `head` is what stands before its arguments, `tail` behind them."""
    rules = [f"start: {' | '.join(f'call_{i}' for i in range(len(schemas)))}"]
    for i, (name, schema) in enumerate(schemas.items()):
        rules += [f"call_{i}: {_literal(head(name))} args_{i} {_literal(tail)}", f"args_{i}: %json {_schema(schema)}"]
    return "\n".join(rules) + "\n"


def tagged_calls(
    schemas: Schemas, head: Callable[[str], str], pair: Callable[[str], tuple[str, str]], tail: str
) -> str:
    """One call whose arguments are text between tags: `pair` gives what stands around a parameter's value."""
    rules = [f"start: {' | '.join(f'call_{i}' for i in range(len(schemas)))}"]
    for i, (name, schema) in enumerate(schemas.items()):
        keys = list(schema.get("properties") or {})
        pairs = [f"pair_{i}_{j}" for j in range(len(keys))]
        several = f"({' | '.join(pairs)})*" if pairs else ""
        rules.append(f"call_{i}: {_literal(head(name))} {several} {_literal(tail)}")
        for rule, key in zip(pairs, keys, strict=True):
            before, behind = pair(key)
            rules += [f"{rule}: {_literal(before)} value_{rule}", f"value_{rule}[suffix={quoted(behind)}]: {TEXT}"]
    return "\n".join(rules) + "\n"


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The schema of each tool's arguments; a tool without one takes nothing."""
    return {tool["function"]["name"]: tool["function"].get("parameters") or NOTHING for tool in tools}


def anything(schemas: Schemas) -> Schemas:
    """The same tools with any object as arguments: where a schema says what no grammar can keep to."""
    return dict.fromkeys(schemas, ANYTHING)


def _literal(text: str) -> str:
    return quoted(text) if text else ""


def _schema(schema: Mapping[str, Any]) -> str:
    """As JSON that stands for an object, whatever it says: arguments are nothing else. White space is fixed, or a model
    that likes it could write spaces until its limit."""
    return json.dumps({**schema, "type": "object", "x-guidance": SPACES}, ensure_ascii=False)
