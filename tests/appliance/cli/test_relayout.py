"""The command relayout: there and back, what it will bring, what it refuses. Not here: bytes (engine/relayout)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.gguf.digest import model_digest
from engine.gguf.reader import read_gguf
from engine.weights.heat import heat_path, read_heat, write_heat
from tests.appliance.cli.shell import inside
from tests.engine.relayout.moe_file import moe_file
from tests.tiny import tiny_llama


@pytest.fixture
def model(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLIBRI_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    return moe_file(tmp_path / "moe.gguf")


def answered(*words: object) -> dict[str, Any]:
    done = inside("relayout", *map(str, words), "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def heat_file(folder: Path, model: Path, layers: list[list[float]]) -> Path:
    path = folder / "heat.json"
    path.write_text(json.dumps({"model_digest": model_digest(read_gguf(model)), "layers": layers}))
    return path


def test_there_and_back(model: Path, tmp_path: Path) -> None:
    copy, back = tmp_path / "copy.gguf", tmp_path / "back.gguf"
    made = answered(model, copy, "--heat", heat_file(tmp_path, model, [[1, 2, 3, 4, 5]] * 3))
    assert (made["file"], made["bytes"]) == ("copy.gguf", copy.stat().st_size)
    assert made["tensors_checked"] == len(read_gguf(model).tensors)
    parts = read_gguf(copy).tensors["blk.0.ffn_gate_exps.weight"].parts
    assert sorted(range(5), key=parts.__getitem__) == [4, 3, 2, 1, 0]
    returned = answered("--back", copy, back)
    assert back.read_bytes() == model.read_bytes()
    assert returned["original_sha256"] == made["original_sha256"]


def test_what_runs_here_have_recorded_orders_the_copy_and_goes_with_it(model: Path, tmp_path: Path) -> None:
    folder, digest = Path(os.environ["COLIBRI_DATA_DIR"], "heat"), model_digest(read_gguf(model))
    write_heat(heat_path(folder, digest), [[1.0, 2.0, 3.0, 4.0, 5.0]] * 3, digest)
    assert answered(model, "--dry-run")["heat"] == heat_path(folder, digest).name
    copy = tmp_path / "copy.gguf"
    answered(model, copy)
    parts = read_gguf(copy).tensors["blk.0.ffn_gate_exps.weight"].parts
    assert sorted(range(5), key=parts.__getitem__) == [4, 3, 2, 1, 0]
    its_own = model_digest(read_gguf(copy))
    heat = read_heat(heat_path(folder, its_own), 3, 5, its_own)
    assert [row.index(max(row)) for row in heat] == [4, 4, 4]


def test_the_words_say_whose_layout_it_is_and_how_to_get_back(model: Path, tmp_path: Path) -> None:
    done = inside("relayout", str(model), str(tmp_path / "copy.gguf"))
    assert done.code == 0 and "Colibri's own layout" in done.out and "--back" in done.out
    assert "reading the copy again 100%" in done.err
    done = inside("relayout", "--back", str(tmp_path / "copy.gguf"), str(tmp_path / "back.gguf"))
    assert done.code == 0 and "the same bytes as before" in done.out


def test_a_dry_run_writes_nothing_and_forecasts(model: Path, tmp_path: Path) -> None:
    heat = heat_file(tmp_path, model, [[9, 1, 0, 0, 0]] * 3)
    before = sorted(os.listdir(tmp_path))
    found = answered(model, "--dry-run", "--heat", heat)
    assert sorted(os.listdir(tmp_path)) == before
    assert (found["layers"], found["experts"], found["used"], found["heat"]) == (3, 5, 2, "heat.json")
    assert [row["cached_experts"] for row in found["reads"]] == [0, 1, 3, 7]
    assert [row["missed"] for row in found["reads"]] == pytest.approx([3.6, 2.6, 0.6, 0.0])
    assert all(row["reads_before"] == pytest.approx(3 * row["reads_after"]) for row in found["reads"])
    one = answered(model, "--dry-run", "--heat", heat, "--cache-mb", 1)["reads"]
    assert [row["cache_bytes"] for row in one] == [1 << 20]
    page = inside("relayout", str(model), "--dry-run").out
    assert "3 layers of 5 experts, a token uses 2; all experts alike" in page and "reads then" in page


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["{model}"], 2, "the file to write is missing"),
        (["{model}", "out.gguf", "--dry-run"], 2, "leave OUT out"),
        (["{model}", "--back", "--dry-run"], 2, "leave --back out"),
        (["{model}", "out.gguf", "--back", "--heat", "x"], 2, "one order only"),
        (["{model}", "out.gguf", "--cache-mb", "3"], 2, "belongs to --dry-run"),
        (["{model}", "--dry-run", "--cache-mb", "-1"], 2, "0 to 16777216 is possible"),
        (["{model}", "--dry-run", "--heat", "/nowhere.json"], 2, "'nowhere.json' cannot be read"),
        (["{model}", "{model}"], 2, "is there already"),
        (["{dense}", "--dry-run"], 3, "has no experts"),
        (["{dense}", "{model}", "--back"], 3, "no way back"),
        (["/nowhere.gguf", "out.gguf"], 3, "there is no such file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_code(
    model: Path, tmp_path: Path, words: list[str], code: int, sentence: str
) -> None:
    dense = tiny_llama(tmp_path / "dense.gguf")
    before = sorted(os.listdir(tmp_path))
    done = inside("relayout", *(word.format(model=model, dense=dense) for word in words))
    assert (done.code, done.out) == (code, "") and sentence in done.err.splitlines()[-1]
    assert sorted(os.listdir(tmp_path)) == before


def test_a_file_that_does_not_say_how_many_experts_a_token_uses(tmp_path: Path) -> None:
    path = moe_file(tmp_path / "moe.gguf", n_used=6)
    done = inside("relayout", str(path), "--dry-run")
    assert done.code == 3 and "'qwen3moe.expert_used_count' is '6'; 1 to 5 is expected" in done.err
