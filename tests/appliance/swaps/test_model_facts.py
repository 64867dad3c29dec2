"""Facts of a file are read once per version of it. Not here: what the facts are (tests/engine/test_footprint.py)."""

import os
from pathlib import Path

import pytest

from appliance.swaps import model_facts
from appliance.swaps.model_facts import MOST_KEPT, facts_of, identity
from engine.errors import BadModelFile, UnsupportedModel
from tests.appliance.nobody import as_nobody, needs_root
from tests.tiny import tiny_llama


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file that was really read."""
    seen: list[Path] = []
    read = model_facts._read
    monkeypatch.setattr(model_facts, "_read", lambda path: seen.append(path) or read(path))
    return seen


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, reads: list[Path]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    first = facts_of(path)
    assert facts_of(path) is first and len(reads) == 1
    os.utime(path, ns=(1, 1))
    assert facts_of(path) == first and len(reads) == 2
    tiny_llama(path, n_layers=3)
    assert facts_of(path).shape.n_layers == 3


def test_a_bad_file_says_the_same_each_time_and_is_good_once_it_is_mended(tmp_path: Path, reads: list[Path]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    said = []
    for _ in range(3):
        with pytest.raises(BadModelFile) as error:
            facts_of(path)
        said.append(error.value.message)
    assert len(set(said)) == 1 and len(reads) == 1
    path.write_bytes(whole)
    assert facts_of(path).weights_bytes > 0
    with pytest.raises(BadModelFile, match="no such file"):
        facts_of(tmp_path / "absent.gguf")
    assert identity(tmp_path / "absent.gguf") == ()


def test_the_kind_of_fault_is_kept(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", **{"general.architecture": "mamba"})  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(UnsupportedModel):
            facts_of(path)


def test_a_vocabulary_nobody_can_use_is_a_fault_of_the_file(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", **{"tokenizer.ggml.eos_token_id": 999})  # type: ignore[arg-type]
    with pytest.raises(BadModelFile, match=r"^'m.gguf': .*eos_token_id"):
        facts_of(path)


@needs_root
def test_a_file_that_was_shut_is_asked_again(tmp_path: Path) -> None:
    """Rights change without the file's times."""
    path = tiny_llama(tmp_path / "m.gguf")
    assert "ModelUnreadable" in as_nobody(lambda: facts_of(path))
    assert facts_of(path).weights_bytes > 0


def test_a_long_life_keeps_no_more_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_facts, "MOST_KEPT", 3)
    for i in range(5):
        facts_of(tiny_llama(tmp_path / f"{i}.gguf", seed=i))
    assert len(model_facts._kept) == 3 <= MOST_KEPT
