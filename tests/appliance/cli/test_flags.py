"""Flags become settings: aliases, long names, profiles. Not here: what the settings check."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.flags import ENGINE, MODEL, SAMPLING, SERVING, add_settings, resolved
from appliance.cli.parser import Parser
from appliance.settings import Settings


def parsed(*words: str) -> Any:
    parser = Parser(prog="colibri x")
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)
    return resolved(parser.parse_args(list(words))).settings


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("-c 512", "ctx_size", 512), ("--ctx-size 512", "ctx_size", 512), ("-t 3", "threads", 3),
        ("--threads auto", "threads", None), ("-tb 2", "threads_batch", 2), ("--threads-batch 2", "threads_batch", 2),
        ("-b 64", "batch_size", 64), ("--batch-size 64", "batch_size", 64), ("-ub 32", "ubatch_size", 32),
        ("-ctk q8_0", "cache_type_k", "q8_0"), ("--cache-type-v q8_0", "cache_type_v", "q8_0"),
        ("-np 1", "parallel", 1),
        ("-lm mmap", "load_mode", "mmap"), ("--mmap", "load_mode", "auto"), ("--no-mmap", "load_mode", "resident"),
        ("--mlock", "load_mode", "mlock"), ("--mlock --no-mlock", "load_mode", "auto"), ("-a x", "alias", "x"),
        ("--host 0.0.0.0", "host", "0.0.0.0"), ("--port 81", "port", 81), ("--no-metrics", "metrics", False),
        ("--no-auth", "no_auth", True), ("--offline", "offline", True), ("-n 5", "n_predict", 5),
        ("--predict 5", "n_predict", 5), ("--n-predict -1", "n_predict", -1), ("--temp 0", "temp", 0.0),
        ("--temperature 0.5", "temp", 0.5), ("-s 7", "seed", 7), ("--seed -1", "seed", -1),
        ("--log-jsonl", "log_jsonl", True),
        ("--max-queue 3", "max_queue", 3), ("--queue-timeout 1.5", "queue_timeout", 1.5),
    ],
)  # fmt: skip
def test_a_flag_in_either_length_is_its_setting(words: str, key: str, value: object) -> None:
    assert getattr(parsed(*words.split()), key) == value


def test_without_flags_everything_is_default() -> None:
    bare = parsed()
    changed = {k for k, f in Settings.model_fields.items() if getattr(bare, k) != f.get_default()}
    assert changed <= {"model", "data_dir"}


def test_every_setting_has_a_flag() -> None:
    parser = Parser(prog="colibri x")
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)
    assert set(Settings.model_fields) <= {action.dest for action in parser._actions}


def test_the_profile_of_the_flag_wins_over_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLIBRI_PROFILE", "batch-tag")
    assert parsed().max_queue == 64
    assert parsed("--profile", "long-doc").max_queue == 4
    assert parsed("--profile", "long-doc", "--max-queue", "9").max_queue == 9


def test_a_profile_comes_from_the_data_folder_of_the_flag(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "mine.yaml").write_text("name: mine\nctx_size: 768\n")
    assert parsed("--data-dir", str(tmp_path), "--profile", "mine").ctx_size == 768


def test_abbreviations_are_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--thr", "2")
    assert "there is no option '--thr'" in capsys.readouterr().err


def test_help_texts_survive_argparse() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)
    assert "--cache-type-k" in parser.format_help()


def test_the_help_has_every_default_and_each_flag_once() -> None:
    parser = Parser(prog="colibri x")
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)
    words = " ".join(parser.format_help().split())
    for shown in ("(default: 1.0)", "(default: physical cores this", "(default: drawn anew", "choose (default: 0)"):
        assert shown in words
    assert words.count("--no-metrics") == 2 and "--no-no-" not in words  # in the usage and in the list
