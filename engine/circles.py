"""Parts of a JSON Schema that only endless texts would fit, since they need themselves. Not here: any other fault.

A grammar shows such a circle when it forces a text from the start; behind a member that may be left out it shows in the
middle of an answer, which is then lost. So every part that can be reached must be able to end, whether it is needed or
not. Each part needs its required members, the least number of its items, all of allOf, what it refers to, and one of
anyOf and oneOf; whose needs can all end can end, and what is left is in a circle. Takes time in proportion to the
schema.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Key = int | tuple[int, str]  # a part, or one of its choices


def endless(schema: object) -> set[int]:
    """The id()s of the parts that can be reached and cannot end."""
    left: dict[Key, int] = {}  # how many of its needs are not known to end
    needed_by: dict[Key, list[Key]] = defaultdict(list)
    can_end: list[Key] = []

    def needs(key: Key, parts: list[Key], is_choice: bool = False) -> None:
        left[key] = min(len(parts), 1) if is_choice else len(parts)
        for part in parts:
            needed_by[part].append(key)
        if not left[key]:
            can_end.append(key)

    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if id(part) in left:
            continue
        if not isinstance(part, Mapping):
            needs(id(part), [])
            continue
        must: list[Key] = [id(other) for other in _all_of(part, schema)]
        for word in ("anyOf", "oneOf"):
            if isinstance(ways := part.get(word), list) and ways:
                needs((id(part), word), [id(way) for way in ways], is_choice=True)
                must.append((id(part), word))
                waiting += ways
        needs(id(part), must)
        waiting += [*_all_of(part, schema), *_optional(part)]
    while can_end:
        for key in needed_by[can_end.pop()]:
            left[key] -= 1
            if left[key] == 0:
                can_end.append(key)
    return {key for key, n in left.items() if n > 0 and isinstance(key, int)}


def _all_of(part: Mapping[str, Any], whole: object) -> list[object]:
    """The parts that each text which fits `part` has a text of."""
    found: list[object] = []
    if isinstance(ref := part.get("$ref"), str) and (target := _at(ref, whole)) is not None:
        found.append(target)
    if isinstance(every := part.get("allOf"), list):
        found += every
    kinds = part.get("type", ["object", "array"])
    members, required = part.get("properties"), part.get("required")
    if "object" in kinds and isinstance(members, Mapping) and isinstance(required, list):
        found += [members[name] for name in required if isinstance(name, str) and name in members]
    least = part.get("minItems")
    if "array" in kinds and isinstance(least, int):
        first = part.get("prefixItems")
        first = first if isinstance(first, list) else []
        found += first[: max(least, 0)]
        if least > len(first) and "items" in part:
            found.append(part["items"])
    return found


def _optional(part: Mapping[str, Any]) -> Iterator[object]:
    """The other parts that a text may have a text of."""
    for word in ("properties", "patternProperties"):
        if isinstance(held := part.get(word), Mapping):
            yield from held.values()
    if isinstance(first := part.get("prefixItems"), list):
        yield from first
    for word in ("items", "additionalProperties"):
        if isinstance(held := part.get(word), Mapping):
            yield held


def _at(ref: str, whole: object) -> object:
    """What a reference inside the schema means; None for another, which the grammar refuses."""
    if not ref.startswith("#"):
        return None
    here = whole
    for word in unquote(ref[1:]).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            here = here.get(word)
        elif isinstance(here, list) and word.isdecimal() and int(word) < len(here):
            here = here[int(word)]
        else:
            return None
    return here
