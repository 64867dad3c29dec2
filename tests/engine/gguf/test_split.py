"""A model in several files: any part names the whole, and parts that do not belong together are refused."""

from itertools import pairwise
from pathlib import Path

import pytest

from engine.errors import BadModelFile
from engine.gguf.digest import model_digest
from engine.gguf.reader import read_gguf
from tests.splits import split
from tests.tiny import tiny_llama


def data_of(path: Path) -> dict[str, bytes]:
    """The bytes of each tensor, found as readers of weights find them: by its place in the whole."""
    gguf, found = read_gguf(path), {}
    for name, info in gguf.tensors.items():
        part = next(p for p in reversed(gguf.parts) if p.begin <= info.offset)
        with part.path.open("rb") as file:
            file.seek(info.offset - part.begin)
            found[name] = file.read(info.n_bytes)
    return found


@pytest.mark.parametrize("tensors", [(0, 7, 5, 0), (5, 0), (3, 0, 4, 0)])
def test_any_part_names_the_whole(tensors: tuple[int, ...], tmp_path: Path) -> None:
    whole = tiny_llama(tmp_path / "m.gguf")
    paths = split(whole, tmp_path, tensors)
    one, expected = read_gguf(whole), data_of(whole)
    for path in paths:
        found = read_gguf(path)
        assert found.path == paths[0] and [part.path for part in found.parts] == paths
        assert data_of(path) == expected
        assert all(part.begin % 4096 == 0 for part in found.parts)
        assert {k: v for k, v in found.metadata.items() if not k.startswith("split.")} == one.metadata
        assert model_digest(found) == model_digest(read_gguf(paths[0])) != model_digest(one)
    ends = sorted((i.offset, i.offset + i.n_bytes) for i in read_gguf(paths[-1]).tensors.values())
    assert all(left[1] <= right[0] for left, right in pairwise(ends))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tiny_llama(tmp_path / "m.gguf"), tmp_path, (3, 4, 0))
    paths[1].unlink()
    words = r"^'m-00003-of-00003.gguf': its part 'm-00002-of-00003.gguf' is not beside it; put all 3 parts"
    with pytest.raises(BadModelFile, match=words):
        read_gguf(paths[2])
    with pytest.raises(BadModelFile, match="there is no such file"):
        read_gguf(paths[1])


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    paths = split(tiny_llama(tmp_path / "m.gguf"), tmp_path, (3, 4, 0))
    paths[2].write_bytes(paths[2].read_bytes()[:-5000])
    with pytest.raises(BadModelFile, match=r"^'m-00001.*: its part 'm-00003-of-00003.gguf': the file ends after"):
        read_gguf(paths[0])


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    paths = split(tiny_llama(tmp_path / "m.gguf"), tmp_path, (3, 0))
    with pytest.raises(BadModelFile, match=r"part of a model in '2' files .* call the parts"):
        read_gguf(paths[0].rename(tmp_path / "renamed.gguf"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({1: {"split.no": 0}}, r"'m-00002-of-00003.gguf' calls itself part '0' of '3' .* 1 of 3 is expected"),
        ({2: {"split.count": 4}}, r"calls itself part '2' of '4'"),
        ({1: {"split.count": None}}, r"calls itself part '1' of 'None'"),
        ({0: {"split.tensors.count": 99}}, r"its parts hold 21 tensors, not '99'"),
    ],
)
def test_parts_of_different_models_are_refused(
    changes: dict[int, dict[str, object]], words: str, tmp_path: Path
) -> None:
    paths = split(tiny_llama(tmp_path / "m.gguf"), tmp_path, (3, 4, 0), changes)
    with pytest.raises(BadModelFile, match=words):
        read_gguf(paths[0])


@pytest.mark.parametrize("count", ["three", -1, 1.5, 2])
def test_a_count_that_is_none_is_refused(count: object, tmp_path: Path) -> None:
    whole = tiny_llama(tmp_path / "m.gguf", **{"split.count": count})  # type: ignore[arg-type]
    with pytest.raises(BadModelFile, match="split"):
        read_gguf(whole.rename(tmp_path / "m-00001-of-00003.gguf"))


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = split(tiny_llama(tmp_path / "m.gguf"), tmp_path, (3, 0))
    again = split(tiny_llama(tmp_path / "n.gguf"), tmp_path, (2, 0))
    again[1].replace(paths[1])
    with pytest.raises(BadModelFile, match="stands in two of its parts"):
        read_gguf(paths[0])
