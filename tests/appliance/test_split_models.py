"""A model in several files as an operator meets it: one row, one name, any part named. Not here: weights."""

import json
import os
from pathlib import Path

import pytest

from appliance.cli.main import main
from appliance.model_files import default_model, existing_model
from appliance.swaps.model_facts import facts_of, identity
from engine.errors import BadModelFile, UsageError
from engine.gguf.split import model_name
from tests.appliance.cli.shell import inside
from tests.splits import split
from tests.tiny import tiny_llama


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three parts in a folder `models`, the whole beside it."""
    (tmp_path / "models").mkdir()
    return split(tiny_llama(tmp_path / "big.gguf"), tmp_path / "models", (0, 9, 0))


def test_a_folder_of_one_model_has_one_model(parts: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = parts[0].parent
    found = default_model(folder)
    assert found is not None and found[0] == parts[0]
    for name in ("big", *(part.name for part in parts)):
        assert existing_model(name, folder).parent == folder and model_name(existing_model(name, folder)) == "big"
    tiny_llama(folder / "small.gguf")
    with pytest.raises(UsageError, match=r"holds 2 models \(big-00001-of-00003.gguf, small.gguf\)"):
        existing_model(None, folder)
    assert main(["inspect", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["files"]
    assert [(row["file"], row["ok"]) for row in rows] == [("big-00001-of-00003.gguf", True), ("small.gguf", True)]


def test_every_part_answers_for_the_whole(parts: list[Path], tmp_path: Path) -> None:
    words = ("--raw", "-p", "the bird", "-n", "6", "--temp", "0", "-t", "1", "--json")
    expected = json.loads(inside("run", "-m", str(tmp_path / "big.gguf"), *words).out)
    for part in (parts[0], parts[2]):
        done = inside("run", "-m", str(part), *words)
        assert done.code == 0, done.err
        assert json.loads(done.out)["tokens"] == expected["tokens"]
    parts[1].unlink()
    done = inside("run", "-m", str(parts[0]), *words)
    assert done.code == 3 and "'big-00002-of-00003.gguf' is not beside it; put all 3 parts" in done.err


def test_another_version_of_any_part_is_another_model(parts: list[Path]) -> None:
    before = identity(parts[0])
    assert before == identity(parts[2]) and facts_of(parts[0]).weights_bytes == facts_of(parts[2]).weights_bytes
    os.utime(parts[1], ns=(1, 1))
    assert identity(parts[0]) != before
    parts[1].unlink()
    assert identity(parts[0]) == ()
    with pytest.raises(BadModelFile, match="is not beside it"):
        facts_of(parts[0])
