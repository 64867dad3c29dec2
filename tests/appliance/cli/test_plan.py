"""`colibri plan`: rows with reasons, stable JSON, exit code 4 with a way out. Not here: the planner's decisions."""

import json
from pathlib import Path

import pytest

from appliance.cli.main import main
from tests.tiny import tiny_llama


def test_each_number_has_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    assert main(["plan", str(path), "-c", "1000"]) == 0
    out = capsys.readouterr().out
    assert "rounded up to whole pages" in out and "warning: the model is trained on 512 positions" in out
    assert main(["plan", "-m", str(path), "-c", "1000", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["fits"] and made["n_ctx"] == 1024 and made["kv_bytes"] == 1024 * 512 and len(made["warnings"]) == 1
    assert {"name", "value", "reason", "provenance"} == set(made["rows"][0])


def test_what_does_not_fit_says_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf", n_layers=8, n_heads=8, n_kv_heads=8, head_dim=128)
    assert main(["plan", str(path), "-c", "16777216", "--json"]) == 4
    seen = capsys.readouterr()
    verdict = json.loads(seen.out)
    assert verdict["fits"] is False and verdict["needed_bytes"] > verdict["available_bytes"]
    assert f"--ctx-size {verdict['max_ctx']}" in verdict["error"] and seen.err.count("\n") == 1
