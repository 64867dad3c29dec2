"""The profiles that ship: complete, explained, right for their work, and examples that hold. Not here: the store."""

import re

import pytest

from appliance.profiles import ProfileStore, check, load_profile
from appliance.profiles.schema import GROUPS, KEYS, TOP, default_words, path_of, takes
from appliance.profiles.store import PACKAGED
from appliance.settings import Settings, resolve

SHIPPED = ("batch-tag", "fallback", "long-doc", "quick-verify")
# What the customer asked for, by hand; the first line is issue 3's.
WANTED = {
    "quick-verify": {"ctx_size": 2048, "temp": 0.0},
    "long-doc": {"ctx_size": 16384, "ubatch_size": 128, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    "batch-tag": {"ctx_size": 2048, "batch_size": 1024, "ubatch_size": 256, "cache_type_k": "q8_0",
                  "cache_type_v": "q8_0", "temp": 0.0},
    "fallback": {"ctx_size": 8192, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "parallel": 1,
                 "fallback": "fallback"},
}  # fmt: skip


def text_of(name: str) -> str:
    return (PACKAGED / f"{name}.yaml").read_text()


def explained(name: str) -> dict[str, tuple[bool, str]]:
    """Of each key, by path: whether it is set or an example, and the comment right above it."""
    found, comment, group = {}, "", ""
    for line in text_of(name).splitlines():
        words = re.fullmatch(r"( *)(#?)([a-z_]+):(.*)", line)
        if words and not words[1] and not words[2] and words[3] in GROUPS:
            assert comment, f"{name}: {line} is not explained"
            group = words[3]
        elif words:
            assert bool(words[1]) == bool(group), f"{name}: {line} is indented like the keys of another group"
            found[f"{group}.{words[3]}" if group else words[3]] = (not words[2], comment.strip())
        comment = f"{comment} {line.strip().removeprefix('# ')}" if line.lstrip().startswith("# ") else ""
    return found


def test_exactly_these_are_packaged_and_each_one_resolves(tmp_path: object) -> None:
    store = ProfileStore(PACKAGED / "no such folder")
    assert tuple(store.names()) == SHIPPED
    for name in SHIPPED:
        assert check(text_of(name), name, SHIPPED)[1] == []
        found = resolve({}, {}, load_profile(name, PACKAGED / "no such folder"))
        assert f"profile {name}" in {row.source for row in found.provenance.values()}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_is_there_with_its_purpose_its_valid_values_and_its_default(name: str) -> None:
    found = explained(name)
    assert list(found) == ["name", "summary", *map(path_of, KEYS)]
    for key in KEYS:
        is_set, comment = found[path_of(key)]
        purpose = str(Settings.model_fields[key].description)
        assert comment.lower().startswith(purpose.lower() + "."), f"{name}: {key}"
        _, takes_words, more = comment.partition(f"Takes {takes(key).words}; default {default_words(key)}")
        assert takes_words, f"{name}: {key}"
        assert not is_set or ". " in more, f"{name}: {key} is set and not said why"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_example_is_right_when_it_is_uncommented(name: str) -> None:
    text = re.sub(r"^( *)#([a-z_]+: )", r"\1\2", text_of(name), flags=re.MULTILINE)
    values, problems = check(text, name, SHIPPED)
    assert values is not None and problems == []
    assert set(values) == set(KEYS)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_does_what_it_is_for_and_names_no_model(name: str) -> None:
    values, _ = check(text_of(name), name, SHIPPED)
    assert values is not None and "model" not in values
    assert values.items() >= WANTED[name].items()
    settings = resolve({"model": "m"}, {}, values).settings
    assert settings.ubatch_size <= settings.batch_size and settings.queue_timeout < settings.timeout
    if name == "fallback":
        assert settings.handover and settings.queue_timeout <= 30 and settings.max_queue <= 4


def test_the_groups_stand_after_the_keys_that_have_none() -> None:
    """A key without indentation below a group reads as if it were the group's."""
    for name in SHIPPED:
        text = text_of(name)
        starts = [text.index(f"\n{group}:") for group in GROUPS]
        assert starts == sorted(starts) and starts[0] > text.index(f"{TOP[-1]}:")
