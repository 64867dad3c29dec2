"""`colibri inspect` and `colibri plan` as a user meets them. Not here: what reader and planner decide."""

import json
from pathlib import Path

import pytest

from appliance.cli.main import main
from engine.gguf.writer import write_gguf
from tests import raw_gguf as raw
from tests.tiny import tiny_llama


def test_a_model_is_shown_with_types_and_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "llama.block_count" in out and "Q4_0" in out and "runs here" in out
    assert "320: <|endoftext|>" in out and max(map(len, out.splitlines())) < 200
    assert main(["inspect", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["supported"] and facts["shape"]["n_layers"] == 2 and facts["types"]["Q4_0"]["tensors"] == 16
    assert facts["metadata"]["tokenizer.ggml.tokens"]["n"] == 320
    assert facts["n_params"] == sum(t["dims"][0] * (t["dims"] + [1])[1] for t in facts["tensors"])


def test_a_model_nobody_runs_is_shown_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf", **{"general.architecture": "gemma9"})
    assert main(["inspect", str(path), "--tensors"]) == 3
    seen = capsys.readouterr()
    assert "no: the architecture 'gemma9' is not supported" in seen.out and "blk.0.attn_q.weight" in seen.out
    assert seen.err.count("\n") == 1 and "gemma9" in seen.err


def test_a_folder_lists_the_broken_with_their_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_llama(tmp_path / "good.gguf")
    whole = raw.llama().bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:-100])
    (tmp_path / "page.gguf").write_text("<html>sign in</html>")
    (tmp_path / "dir.gguf").mkdir()
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    raw.llama().put("llama.block_count", raw.U32, raw.u32(0)).write(tmp_path / "zero.gguf")
    (tmp_path / "notes.txt").write_text("not listed")
    assert main(["inspect", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"file", "good.gguf", "cut.gguf", "page.gguf", "dir.gguf", "gone.gguf", "zero.gguf"}
    assert "Q4_0" in lines["good.gguf"] and "cannot run" not in lines["good.gguf"]
    assert "HTML page" in lines["page.gguf"] and "block_count is 0" in lines["zero.gguf"]
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    files = {f["file"]: f for f in json.loads(capsys.readouterr().out)["files"]}
    assert files["good.gguf"]["ok"] and "download it again" in files["cut.gguf"]["reason"]
    assert not files["zero.gguf"]["ok"] and files["zero.gguf"]["architecture"] == "llama"


def test_escapes_of_a_file_never_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\nname"
    keys = {"general.name": evil, evil: 1, "general.tags": [evil] * 3, "general.architecture": evil}
    write_gguf(tmp_path / "m.gguf", keys, [(evil, (8,), "F32", bytes(32))])
    assert main(["inspect", str(tmp_path / "m.gguf"), "--tensors"]) == 3
    assert main(["inspect", str(tmp_path)]) == 0
    assert main(["inspect", str(tmp_path / "m.gguf"), "--json"]) == 3
    seen = capsys.readouterr()
    assert "\x1b" not in seen.out + seen.err and "\x07" not in seen.out + seen.err and r"\x1b]0;owned" in seen.out


def test_numbers_json_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_llama(tmp_path / "m.gguf", **{"general.a": float("nan"), "general.b": "\udcff"})
    assert main(["inspect", str(path), "--json"]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["metadata"]["general.a"] == "nan"


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_a_file_that_is_no_model_is_one_line_and_exit_code_3(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("Dear diary,\n")
    assert main([command, str(path)]) == 3
    assert main([command, str(tmp_path / "none.gguf")]) == 3
    seen = capsys.readouterr()
    assert seen.out == "" and len(seen.err.splitlines()) == 2 and "text file" in seen.err
