"""`colibri plan`: rows with reasons, stable JSON, exit code 4 with a way out, folders ranked. Not here: decisions."""

import json
from pathlib import Path

import pytest

from appliance.cli.main import main
from tests.tiny import tiny_llama

KEYS = {
    "file", "profile", "fits", "verdict", "reason", "n_ctx", "max_ctx", "load_mode", "threads", "weights",
    "weights_bytes", "kv_bytes", "kv_bytes_per_token", "buffers_bytes", "engine_bytes", "needed_bytes", "total_bytes",
    "budget_bytes", "budget_reason", "spare_bytes", "cached", "warnings", "rows",
    "pinned_bytes", "ring_bytes", "expert_cache_bytes", "stream_bytes_per_token",
    "cycle_floor_bytes", "private_bytes", "fit", "tok_s", "bound", "ram_bytes_per_token", "disk_bytes_per_token",
}  # fmt: skip


def test_each_number_has_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    assert main(["plan", str(path), "-c", "1000"]) == 0
    out = capsys.readouterr().out
    assert "rounded up to whole pages" in out and "warning: the model is trained on 512 positions" in out
    assert main(["plan", "-m", str(path), "-c", "1000", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["fits"] and made["n_ctx"] == 1024 and made["kv_bytes"] == 1024 * 512 and len(made["warnings"]) == 1
    assert {"name", "value", "reason", "provenance"} == set(made["rows"][0])
    assert set(made) == KEYS
    assert made["total_bytes"] == sum(made["weights"].values()) + 1024 * 512 + made["engine_bytes"]


def test_what_does_not_fit_says_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf", n_layers=8, n_heads=8, n_kv_heads=8, head_dim=128)
    assert main(["plan", str(path), "-c", "16777216", "--json"]) == 4
    seen = capsys.readouterr()
    verdict = json.loads(seen.out)
    assert set(verdict) == KEYS | {"error", "available_bytes"} and verdict["verdict"] == "NO"
    assert verdict["fits"] is False and verdict["needed_bytes"] > verdict["available_bytes"]
    assert f"--ctx-size {verdict['max_ctx']}" in verdict["error"] and seen.err.count("\n") == 1


def test_a_profile_can_be_planned_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    assert main(["plan", str(path), "--profile", "long-doc", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["profile"], made["n_ctx"]) == ("long-doc", 16384)
    assert made["kv_bytes"] == 16384 * 512 * 34 // 64, "the profile caches in q8_0"
    assert main(["plan", str(path), "--profile", "long-doc"]) == 0
    assert capsys.readouterr().out.startswith("m.gguf, profile long-doc\n")


def a_folder(folder: Path) -> Path:
    """Two models that fit, one whose cache cannot, one cut short and one that is a web page."""
    large = tiny_llama(folder / "large.gguf", n_embd=256, n_layers=4)
    tiny_llama(folder / "small.gguf")
    tiny_llama(folder / "wide.gguf", n_layers=8, n_heads=32, n_kv_heads=32, head_dim=256, n_embd=64)
    (folder / "cut.gguf").write_bytes(large.read_bytes()[:-100])
    (folder / "page.gguf").write_text("<!DOCTYPE html><html></html>")
    (folder / "notes.txt").write_text("no model")
    return folder


def test_a_folder_is_ranked_and_bad_files_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_folder(tmp_path)
    assert main(["plan", str(folder), "-c", "1000000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["file"] for m in found["models"]] == ["large.gguf", "small.gguf", "wide.gguf", "cut.gguf", "page.gguf"]
    assert [m["verdict"] for m in found["models"]] == ["OK", "OK", "NO", "BAD", "BAD"]
    assert found["models"][2]["kv_bytes"] == 8 * 32 * 256 * 4 * 1000192 > found["budget_bytes"]
    assert "would fit" in found["models"][2]["reason"] and found["models"][3]["total_bytes"] is None
    assert main(["plan", str(folder), "-c", "1000000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(str(folder))
    assert lines[1].split() == ["MODEL", "WEIGHTS", "CTX", "KV", "TOTAL", "SPARE", "TOK/S", "FIT"]
    assert [line.split()[0] for line in lines[2:7]] == [m["file"] for m in found["models"]]
    ends = ("resident", "resident", "does not fit", "cannot be used", "cannot be used")
    assert all(line.endswith(end) for line, end in zip(lines[2:7], ends, strict=True))
    assert len(lines) == 10 and lines[8].startswith("'cut.gguf': the file ends") and "HTML" in lines[9]


def test_a_folder_without_a_usable_model_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(tmp_path)]) == 3
    assert "holds no file named *.gguf" in capsys.readouterr().err
    (tmp_path / "x.gguf").write_text("<html>")
    assert main(["plan", str(tmp_path)]) == 3
    assert "cannot be used" in capsys.readouterr().out


def test_what_was_measured_serves_all_plans_to_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    sources = []
    for flags in ([], ["--measure"], []):
        assert main(["plan", str(path), "--json", *flags]) == 0
        made = json.loads(capsys.readouterr().out)
        row = next(row for row in made["rows"] if row["name"] == "memory_bytes_per_s")
        sources.append(row["provenance"])
        assert made["tok_s"] > 0 and (made["fit"], made["bound"]) == ("resident", "memory")
    assert sources == ["policy", "measured", "measured"]
    assert main(["plan", str(tmp_path), "--measure"]) == 0
    assert "TOK/S" in capsys.readouterr().out
