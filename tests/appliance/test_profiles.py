"""Profiles: the shipped ones are right and explained, wrong ones are told by line. Not here: layers (test_settings)."""

import re
from pathlib import Path

import pytest

from appliance.profiles import PACKAGED, load_profile, profile_names, read_profile
from appliance.settings import resolve
from engine.errors import UsageError

SHIPPED = ("batch-tag", "fallback", "long-doc", "quick-verify")


def written(folder: Path, text: str | bytes, name: str = "x") -> Path:
    path = folder / f"{name}.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_shipped_profiles_are_there_and_resolve(tmp_path: Path) -> None:
    assert tuple(profile_names(tmp_path)) == SHIPPED
    for name in SHIPPED:
        found = resolve({}, {}, load_profile(name, tmp_path))
        assert f"profile {name}" in {row.source for row in found.provenance.values()}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_of_a_shipped_profile_is_explained_above_it(name: str) -> None:
    lines = (PACKAGED / f"{name}.yaml").read_text().splitlines()
    for i, line in enumerate(lines):
        if re.match(r"\s*\w+:", line):
            above = i - 1
            while re.match(r"\s*\w+: ", lines[above]):  # a group of keys shares the comment above it
                above -= 1
            assert lines[above].lstrip().startswith("#"), f"{name}: {line}"


def test_a_profile_in_the_data_folder_overlays_the_packaged_one(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    written(tmp_path / "profiles", "name: fallback\nctx_size: 512\n", "fallback")
    assert load_profile("fallback", tmp_path) == {"name": "fallback", "ctx_size": 512}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nctx_sise: 4096\n", "line 2: nothing reads the key 'ctx_sise'; did you mean 'ctx_size'"),
        ("name: x\nport: 1\n", "line 2: 'port' belongs to the process"),
        ("name: x\ntemp: 1.0\n", "line 2: .* it goes under 'sampling:'"),
        ("name: x\nsampling:\n  temp: 1\n  tmp: 2\n", "line 4: nothing reads .*'sampling.tmp'; did you mean 'temp"),
        ("name: x\nctx_size: 1\nctx_size: 2\n", "line 3: the key 'ctx_size' is set twice, first on line 2"),
        ("name: x\nctx_size: '512'\n", "line 2: ctx_size is '512'"),
        ("name: x\nload_mode: no\n", "line 2: load_mode is 'no'"),
        ("name: x\nsampling:\n", "line 2: 'sampling:' holds no keys"),
        ("name: y\n", "line 1: the name 'y' differs from the file's, x"),
        ("ctx_size: 1\n", "the key 'name' is missing"),
        ("- a\n", "a profile is a list of 'key: value' lines"),
        ("", "a profile is a list of 'key: value' lines"),
        ("name: x\nctx_size: [1, 2]\n", "line 2: ctx_size is"),
        ("name: &a x\nalias: *a\n", "anchors and aliases are not used"),
        ("name: !!python/object:os.system x\n", "the tag .* is not used"),
        ("name: x\n---\nname: y\n", "line 2: not the YAML of a profile"),
        ("\tname: x\n", "line 1: not the YAML of a profile"),
        (b"\xff\xfe\x00", "not the YAML of a profile"),
        ("[" * 5000, "nested too deeply"),
        ("name: x\nsampling: {a: {b: {c: {d: {e: 1}}}}}\n", "nested too deeply"),
        ("# " + "x" * 70_000, "over 65536 bytes"),
    ],
)
def test_a_wrong_profile_is_told_by_line_with_the_nearest_name(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_profile(written(tmp_path, text))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("scalar", ["010", "1:30", "0x10", "1_000", "yes", "1e3"])
def test_yaml_surprises_stay_text_and_are_refused_as_numbers(tmp_path: Path, scalar: str) -> None:
    with pytest.raises(UsageError, match=f"ctx_size is '{scalar}'"):
        read_profile(written(tmp_path, f"name: x\nctx_size: {scalar}\n"))


def test_an_unknown_profile_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no profile 'longdoc' among batch-tag, .*did you mean 'long-doc'"):
        load_profile("longdoc", tmp_path)


@pytest.mark.parametrize("name", ["../fallback", "/etc/passwd", "A", "", "a b"])
def test_a_profile_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no profile name"):
        load_profile(name, tmp_path)
