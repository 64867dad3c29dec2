"""Values changed in a text that keeps all its other bytes. Not here: what the values must be (test_check)."""

from typing import Any

import pytest

from appliance.profiles import BadProfile, check
from appliance.profiles.edit import rendered, set_values
from appliance.profiles.schema import KEYS, path_of, takes
from appliance.profiles.store import PACKAGED
from engine.errors import UsageError

TEXT = """\
# Made for the night shift.
name: x   # equals the file's
#alias: night     an example
ctx_size: 2048    # short

sampling:
  # Greedy.
  temp: 0.0
  #seed: 42

queue: {max_queue: 4}   # in one line
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("ctx_size", 512, "ctx_size: 2048    # short", "ctx_size: 512    # short"),
        ("alias", "day", "#alias: night     an example", "alias: day"),
        ("sampling.temp", 0.5, "  temp: 0.0", "  temp: 0.5"),
        ("sampling.seed", 7, "  #seed: 42", "  seed: 7"),
        ("sampling.top_k", 1, "  temp: 0.0\n", "  temp: 0.0\n  top_k: 1\n"),
        ("queue.max_queue", 9, "{max_queue: 4}", "{max_queue: 9}"),
        ("alias", "a, b's", "#alias: night     an example", "alias: a, b's"),
        ("queue.max_queue", "a, b", "{max_queue: 4}", '{max_queue: "a, b"}'),
        ("queue.handover", "Later: ok?", "{max_queue: 4}", '{max_queue: 4, handover: "Later: ok?"}'),
        ("drain.drain_policy", "cancel", "# in one line\n", "# in one line\ndrain:\n  drain_policy: cancel\n"),
        ("threads", 2, "# in one line\n", "# in one line\nthreads: 2\n"),
        ("aliases", ("a", "1"), "# in one line\n", '# in one line\naliases: [a, "1"]\n'),
        ("ctx_size", None, "ctx_size: 2048", "#ctx_size: 2048"),
        ("sampling.temp", None, "  temp: 0.0", "  #temp: 0.0"),
        ("model", None, "", ""),
    ],
)
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_only_those_characters_change(path: str, value: Any, old: str, new: str, eol: str) -> None:
    text, old, new = (words.replace("\n", eol) for words in (TEXT, old, new))
    found = set_values("\ufeff" + text, {path: value})
    assert found == "\ufeff" + text.replace(old, new, 1)
    if value != "a, b":
        values, problems = check(found, "x", ["fallback"])
        assert not problems and values is not None
        assert values.get(path.rpartition(".")[2]) == value


def test_values_of_several_lines_are_replaced_whole() -> None:
    text = "name: x\nwarmup:\n  warmup_prompt: |\n    one\n    two\n  warmup_tokens: 8\naliases:\n- a\n- b\n"
    found = set_values(text, {"warmup.warmup_prompt": "three", "aliases": ["c"]})
    assert found == "name: x\nwarmup:\n  warmup_prompt: three\n  warmup_tokens: 8\naliases: [c]\n"
    assert set_values("name: x\nalias:\n", {"alias": "a"}) == "name: x\nalias: a\n"
    assert set_values("name: x\nqueue:\n", {"queue.timeout": 5.0}) == "name: x\nqueue:\n  timeout: 5.0\n"
    assert set_values("name: x", {"alias": "a"}) == "name: x\nalias: a\n"
    with pytest.raises(UsageError, match="comments between its lines"):
        set_values("name: x\naliases:\n- a  # first\n- b\n", {"aliases": ["c"]})


def test_what_cannot_be_read_is_not_edited() -> None:
    with pytest.raises(BadProfile):
        set_values("name: 'x\n", {"alias": "a"})
    for path in ("ctx_sise", "sampling.ctx_size", "temp", "port", "a.b.c", ""):
        with pytest.raises(UsageError, match="is no key of a profile"):
            set_values(TEXT, {path: 1})


ODD = ("-", "no", "3.10", " a ", "a: b", "a #b", "- a", "\n", "'", '"', "\\", "é", "*a", "12:30", "~", "1e3", "\t", "{")


@pytest.mark.parametrize("text", ODD)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    found = set_values("name: x\n", {"warmup.warmup_prompt": text})
    values, problems = check(found, "x", ["fallback"])
    assert values == {"warmup_prompt": text} and not problems


@pytest.mark.parametrize("name", [path.stem for path in PACKAGED.glob("*.yaml")])
def test_every_key_of_a_shipped_profile_can_be_set_and_keeps_every_line_of_comment(name: str) -> None:
    samples = {"whole": 1, "number": 1.0, "switch": True, "text": "some text", "texts": ("a", "b")}
    before = (PACKAGED / f"{name}.yaml").read_text()
    comments = [line for line in before.splitlines() if line.lstrip().startswith("# ")]
    wanted: dict[str, Any] = {}
    for key in KEYS:
        wanted[path_of(key)] = takes(key).choices[0] if takes(key).base == "word" else samples[takes(key).base]
    wanted["fallback"] = "fallback"
    found = set_values(before, wanted)
    values, problems = check(found, name, ["fallback"])
    assert values == {path.rpartition(".")[2]: value for path, value in wanted.items()}, problems
    assert [line for line in found.splitlines() if line.lstrip().startswith("# ")] == comments


def test_numbers_are_written_so_that_they_are_read_back() -> None:
    assert [rendered(value) for value in (1, 0.5, 1e-7, 1e22, True, -1)] == ["1", "0.5", "1e-07", "1e+22", "true", "-1"]
