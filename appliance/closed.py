"""Answers that can be one of a few texts only: which a schema leaves, what their scores say. Not here: scoring.

    closed = ClosedSet.of(schema)        None where an answer may be anything else
    closed.texts                         every answer that fits, as constrained writing would write it
    closed.confidence(scores)            by field: its most probable value's share, how far the next one is

A schema is closed when it is an object whose properties are all required, allows no others, and has leaves of enum,
const or boolean, at any depth, MOST combinations of them at the most. ln p of whole answers is what is scored, so a
field's probability is the share of all answers that have this value: what is said of one field knows the others.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

LEAST, MOST = 2, 64
MOST_DEPTH = 8
# What says nothing about which texts fit; with any other word the schema is not closed.
_PLACES = ("$defs", "definitions")
_TOLD = {"title", "description", "examples", "default", "$schema", "$id", "$comment", *_PLACES}
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClosedSet:
    """`answers` are the values of the leaves of each text, in the order of `paths`."""

    paths: tuple[Path, ...]
    answers: tuple[tuple[Any, ...], ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, schema: object) -> "ClosedSet | None":
        """The answers that fit a JSON Schema, or None when it is not closed."""
        leaves = list(_leaves(schema, (), schema))
        if not leaves or any(values is None for _, values in leaves):
            return None
        columns = [values or () for _, values in leaves]
        if not LEAST <= math.prod(map(len, columns)) <= MOST:
            return None
        paths, answers = tuple(path for path, _ in leaves), tuple(product(*columns))
        texts = tuple(_written(paths, answer) for answer in answers)
        return cls(paths, answers, texts) if len(set(texts)) == len(texts) else None

    @classmethod
    def choice(cls, given: Sequence[str]) -> "ClosedSet | None":
        """A few texts as they are, told of as `choice`; None where there are too many or an empty one."""
        texts = tuple(dict.fromkeys(given))
        if not LEAST <= len(texts) <= MOST or "" in texts:
            return None
        return cls((("choice",),), tuple((text,) for text in texts), texts)

    @property
    def weighs_end(self) -> bool:
        """Whether a text may be the beginning of another: JSON's brackets see to it that none is."""
        return any(a != b and b.startswith(a) for a in self.texts for b in self.texts)

    def confidence(self, scores: Sequence[float]) -> dict[str, Any]:
        """Of each leaf, by its path with dots: probability of its most probable value, its distance to the next
        (`margin`), what that is (`runner_up`), and the entropy in nats."""
        shares = probabilities(scores)
        found: dict[str, Any] = {}
        for i, path in enumerate(self.paths):
            by_value: dict[str, float] = {}
            for answer, share in zip(self.answers, shares, strict=True):
                key = json.dumps(answer[i])
                by_value[key] = by_value.get(key, 0.0) + share
            if len(by_value) > 1:
                found[".".join(path)] = _told(by_value)
        return found


def probabilities(scores: Sequence[float]) -> list[float]:
    """The shares of ln probabilities, which sum to 1."""
    most = max(scores)
    parts = [math.exp(score - most) for score in scores]
    whole = math.fsum(parts)
    return [part / whole for part in parts]


def entropy(shares: Sequence[float]) -> float:
    """In nats: 0 where one has it all, ln n where all have the same."""
    return max(0.0, -math.fsum(p * math.log(p) for p in shares if p > 0))


def _told(by_value: Mapping[str, float]) -> dict[str, Any]:
    (_, first), (second_key, second) = sorted(by_value.items(), key=lambda pair: -pair[1])[:2]
    return {
        "probability": round(first, 6), "margin": round(first - second, 6), "runner_up": json.loads(second_key),
        "entropy": round(entropy(list(by_value.values())), 6),
    }  # fmt: skip


def _leaves(schema: object, path: Path, root: object) -> Iterator[tuple[Path, tuple[Any, ...] | None]]:
    """Each leaf with its values, None for one that may be anything else; in the order in which they are written."""
    schema = _followed(schema, root)
    if schema is None or len(path) > MOST_DEPTH:
        yield path, None
        return
    words = set(schema) - _TOLD
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties:
        yield path, _values(schema, words) if path else None
        return
    is_plain = words <= {"type", "properties", "required", "additionalProperties"}
    is_whole = isinstance(required, list) and set(map(str, required)) == set(properties)
    is_closed = schema.get("additionalProperties") is False and schema.get("type", "object") == "object"
    if not (is_plain and is_whole and is_closed):
        yield path, None
        return
    for name, part in properties.items():
        yield from _leaves(part, (*path, name), root)


def _followed(schema: object, root: object) -> dict[str, Any] | None:
    """The schema behind references into the document itself; None for another kind, and for a circle."""
    for _ in range(MOST_DEPTH):
        if not isinstance(schema, dict):
            return None
        reference = schema.get("$ref")
        if reference is None:
            return schema
        parts = str(reference).split("/")
        if set(schema) - _TOLD != {"$ref"} or len(parts) != 3 or parts[0] != "#" or parts[1] not in _PLACES:
            return None
        places = root.get(parts[1]) if isinstance(root, dict) else None
        schema = places.get(parts[2]) if isinstance(places, dict) else None
    return None


def _values(schema: Mapping[str, Any], words: set[str]) -> tuple[Any, ...] | None:
    kind = schema.get("type")
    if words == {"type"} and kind == "boolean":
        return (True, False)
    if words == {"const"} or words == {"const", "type"}:
        given = [schema["const"]]
    elif (words == {"enum"} or words == {"enum", "type"}) and isinstance(schema["enum"], list):
        given = schema["enum"]
    else:
        return None
    if len(given) > MOST or any(isinstance(value, list | dict | float) for value in given):
        return None
    kinds = {"string": str, "boolean": bool, "integer": int, "null": type(None)}
    if kind is not None and (kind not in kinds or any(type(value) is not kinds[kind] for value in given)):
        return None
    return tuple({json.dumps(value): value for value in given}.values())


def _written(paths: Sequence[Path], answer: Sequence[Any]) -> str:
    """The JSON text without white space, as constrained writing has it."""
    whole: dict[str, Any] = {}
    for path, value in zip(paths, answer, strict=True):
        at = whole
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
