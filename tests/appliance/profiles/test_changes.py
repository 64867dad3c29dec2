"""What a change does, in words, and what applying it costs. Not here: bytes (the planner)."""

from typing import Any

import pytest

from appliance.profiles import changes, load_profile
from appliance.profiles.schema import KEYS, takes
from appliance.profiles.store import PACKAGED
from appliance.settings import about, resolve

NOWHERE = PACKAGED / "no such folder"


def settings(name: str, **flags: Any) -> dict[str, Any]:
    return resolve({"model": "m", **flags}, {}, load_profile(name, NOWHERE)).settings.model_dump()


def test_equal_settings_differ_in_nothing_and_the_process_s_keys_are_not_compared() -> None:
    assert changes(settings("long-doc"), settings("long-doc", port=1, log_level="debug")) == []


def test_from_quick_to_long_every_key_that_differs_is_told_with_both_values() -> None:
    old, new = settings("quick-verify"), settings("long-doc")
    found = changes(old, new)
    assert {c.key for c in found} == {key for key in KEYS if old[key] != new[key]} >= {"ctx_size", "cache_type_k"}
    assert all((c.old, c.new, c.kind) == (old[c.key], new[c.key], about(c.key)["kind"]) for c in found)
    by_key = {c.key: c.effect for c in found}
    assert by_key["ctx_size"] == (
        "8 times the positions, and as much memory for their keys and values; the worker is started anew"
    )
    assert by_key["cache_type_k"].startswith("cached keys take 53% of the memory, a little less exact; the worker")
    assert by_key["max_queue"].startswith("less: requests that may wait") and by_key["max_queue"].endswith("request on")
    assert by_key["drain_timeout"].endswith("from the next swap on")
    back = {c.key: c.effect for c in changes(new, old)}
    assert back["ctx_size"].startswith("0.125 times") and "188% of the memory, exact" in back["cache_type_k"]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_words_for_its_change(key: str) -> None:
    samples: dict[str, tuple[Any, Any]] = {
        "whole": (1, 2), "number": (1.0, 2.0), "text": ("a", None), "texts": ((), ("a",)),
        "word": takes(key).choices[:2], "switch": (True, False),
    }  # fmt: skip
    old, new = samples[takes(key).base]
    (found,) = changes({key: old}, {key: new})
    assert found.json() == {
        "key": key, "from": list(old) if old == () else old, "to": list(new) if isinstance(new, tuple) else new,
        "kind": about(key)["kind"], "effect": found.effect,
    }  # fmt: skip
    assert len(found.effect) > 20 and "None" not in found.effect


@pytest.mark.parametrize(("old", "new", "words"), [(0, 512, "room for 512 tokens"), (512, 0, "the planner chooses")])
def test_a_context_that_the_planner_chooses_has_no_ratio(old: int, new: int, words: str) -> None:
    (found,) = changes({"ctx_size": old}, {"ctx_size": new})
    assert found.effect.startswith(words)
