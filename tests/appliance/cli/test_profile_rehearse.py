"""`colibri profile rehearse` with a tiny but real model: the whole context, its numbers, what lint makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.machine.peak import private_bytes
from appliance.rehearsals import last
from tests.appliance.cli.shell import Done, inside
from tests.tiny import tiny_llama

PROFILE = "name: night\nctx_size: 512\nthreads: 1\ncache_type_k: q8_0\ncache_type_v: q8_0\n"


@pytest.fixture(autouse=True)
def _box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    tiny_llama(tmp_path / "models" / "tiny.gguf", n_ctx=4096)
    monkeypatch.setenv("COLIBRI_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("COLIBRI_DATA_DIR", str(tmp_path / "data"))
    written(tmp_path, PROFILE)


def written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data" / "profiles" / "night.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rehearsed(*words: str, code: int = 0) -> Done:
    done = inside("profile", "rehearse", "night", *words)
    assert done.code == code, done
    return done


def test_without_a_file_the_context_is_filled(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(rehearsed("--json", "-n", "12").out)
    assert (found["n_prompt"], found["n_generated"], found["n_ctx"], found["parallel"]) == (500, 12, 512, 1)
    assert not found["is_own_text"] and found["load_mode"] == "resident"
    # This process holds the tests' own memory too; the engine's part is small.
    assert 0 < found["planned_bytes"] < found["budget_bytes"] and private_bytes() <= 2 * found["peak_bytes"]
    assert found["prompt_tok_s"] == pytest.approx(500 / found["prompt_s"], rel=0.3), "milliseconds, rounded"
    assert found["tok_s"] > 0 and found["planned_tok_s"] > 0
    assert last(tmp_path / "data", "night", found["etag"]) == found


def test_a_text_of_ones_own_goes_through_the_template_and_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "longest.txt"
    path.write_text("the bird sees the river " * 20)
    lines = rehearsed("--prompt-file", str(path)).out.splitlines()
    model = str(tmp_path / "models" / "tiny.gguf")
    n = len(json.loads(inside("run", "-m", model, "-n", "1", "--json", "-f", str(path)).out)["prompt_tokens"])
    assert lines[0].startswith("profile      night rev ") and lines[0].endswith(", tiny.gguf, resident")
    assert lines[1] == f"input        {n} of 512 tokens, your text"
    assert [line.split("  ")[0] for line in lines[2:5]] == ["peak memory", "prompt", "at the end"]
    assert "planned" in lines[2] and "available" in lines[2] and "tok/s" in lines[4]


@pytest.mark.parametrize(
    ("text", "words", "code", "sentence"),
    [
        ("the bird " * 2000, (), 2, "context 512, so that nothing is left for an answer; raise its ctx_size"),
        (None, (), 3, "longest.txt cannot be read"),
        ("a", ("-n", "0"), 2, "--tokens 0: 1 to 4096 is possible"),
    ],
)
def test_what_cannot_be_rehearsed_is_one_sentence_and_notes_nothing(
    tmp_path: Path, text: str | None, words: tuple[str, ...], code: int, sentence: str
) -> None:
    path = tmp_path / "longest.txt"
    if text is not None:
        path.write_text(text)
    done = rehearsed("--prompt-file", str(path), *words, code=code)
    assert sentence in done.err.splitlines()[-1] and done.out == ""
    assert not (tmp_path / "data" / "rehearsals.json").exists()


def test_lint_asks_for_a_rehearsal_before_a_schedule_and_again_after_a_change(tmp_path: Path) -> None:
    ask = "night.yaml:6:1: warning: this text was never rehearsed; run 'colibri profile rehearse night'"
    written(tmp_path, PROFILE + "schedule: night\n")
    assert ask in inside("profile", "check", "night").out
    assert "never rehearsed" not in inside("profile", "check", "quick-verify").out
    # Nothing reads a schedule yet, so such a profile cannot be loaded; what was noted of that very text still counts.
    from appliance.profiles.store import etag_of
    from appliance.rehearsals import keep

    keep(tmp_path / "data", "night", {"etag": etag_of(PROFILE + "schedule: night\n"), "tok_s": 1.0})
    assert "never rehearsed" not in inside("profile", "check", "night").out
    written(tmp_path, PROFILE + "schedule: dawn\n")
    assert ask in inside("profile", "check", "night").out


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"version": 2, "profiles": {}}', '{"version": 1, "profiles": 3}',
                                  '{"version": 1, "profiles": {"night": 1}}'])  # fmt: skip
def test_odd_notes_count_as_none_and_do_not_stay(tmp_path: Path, text: str) -> None:
    from appliance.rehearsals import keep

    (tmp_path / "data" / "rehearsals.json").write_text(text)
    assert last(tmp_path / "data", "night", "e") is None
    keep(tmp_path / "data", "night", {"etag": "e"})
    assert last(tmp_path / "data", "night", "e") == {"etag": "e"} and last(tmp_path / "data", "night", "f") is None
