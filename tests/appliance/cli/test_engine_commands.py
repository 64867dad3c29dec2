"""run, chat, bench and logits with a tiny but real model. Not here: flags, number lists, the bundled model."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.cli.shell import environment, inside, started
from tests.tiny import tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", n_ctx=4096))


def answered(*words: str, **more: Any) -> dict[str, Any]:
    done = inside(*words, "--json", **more)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_run_gives_ids_text_timings_and_stats(model: str) -> None:
    words = ("run", "-m", model, "--raw", "-p", "the bird", "-n", "5", "--temp", "0", "-t", "1", "--logprobs", "2")
    found = answered(*words)
    assert {"prompt_tokens", "tokens", "text", "finish_reason", "timings", "stats", "logprobs"} == set(found)
    assert 1 <= len(found["tokens"]) <= 5 and found["finish_reason"] in ("stop", "length")
    assert found["timings"]["prompt_n"] == len(found["prompt_tokens"])
    assert found["timings"]["predicted_n"] == len(found["tokens"])
    assert {"prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_token_ms"} <= set(found["timings"])
    assert [row["id"] for row in found["logprobs"]] == found["tokens"]
    assert all(len(row["top"]) == 2 and row["top"][0][0] == row["id"] for row in found["logprobs"])
    assert found["stats"]["model"] == "tiny.gguf" and found["stats"]["threads"] == 1


def test_the_same_seed_gives_the_same_answer_from_file_and_pipe(model: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("the river")
    common = ("run", "-m", model, "--raw", "-n", "8", "--seed", "7", "--temp", "1.5")
    from_file = answered(*common, "-f", str(tmp_path / "p.txt"))
    from_pipe = answered(*common, stdin="the river")
    assert from_file["tokens"] == from_pipe["tokens"] and from_pipe["stats"]["seed"] == 7


def test_text_streams_to_stdout_and_equals_the_json_text(model: str) -> None:
    words = ("run", "-m", model, "-p", "Hello", "-n", "6", "--temp", "0")
    done = inside(*words)
    assert done.code == 0
    text = answered(*words)["text"]
    assert done.out == (text if text.endswith("\n") else text + "\n")


def test_the_chat_template_is_used_unless_raw(model: str) -> None:
    templated = answered("run", "-m", model, "-p", "Hello", "-n", "1")["prompt_tokens"]
    raw = answered("run", "-m", model, "-p", "Hello", "-n", "1", "--raw")["prompt_tokens"]
    assert len(templated) > len(raw)


def test_guessing_gives_the_same_answer_and_says_how_often_it_was_right(model: str) -> None:
    words = ("run", "-m", model, "--raw", "-p", "the bird " * 20, "-n", "200", "--temp", "0.3", "--seed", "3")
    plain = answered(*words, "--logprobs", "1")
    guessed = answered(*words, "--logprobs", "1", "--spec-type", "ngram-simple")
    kept = ("prompt_tokens", "tokens", "text", "finish_reason", "logprobs")
    assert [guessed[key] for key in kept] == [plain[key] for key in kept]
    assert "draft_n" not in plain["timings"] and plain["stats"]["spec_type"] == "none"
    assert 0 <= guessed["timings"]["draft_n_accepted"] <= guessed["timings"]["draft_n"] > 0
    assert guessed["stats"]["spec_type"] == "ngram-simple"


def test_a_draft_model_gives_the_same_answer(model: str, tmp_path: Path) -> None:
    small = str(tiny_llama(tmp_path / "small.gguf", n_ctx=4096, n_layers=1))
    words = ("run", "-m", model, "--raw", "-p", "the bird", "-n", "80", "--temp", "0.3", "--seed", "3")
    plain, guessed = answered(*words), answered(*words, "-md", small, "--spec-draft-n-max", "4")
    assert guessed["tokens"] == plain["tokens"] and guessed["stats"]["spec_type"] == "draft-simple"
    assert guessed["timings"]["draft_n"] >= 1
    beside = json.loads(inside("plan", model, "-md", small, "--json").out)
    assert "draft_bytes" in [row["name"] for row in beside["rows"]]


@pytest.mark.parametrize(
    ("more", "code", "sentence"),
    [
        (["--spec-type", "draft-simple"], 2, "--spec-draft-model FILE"),
        (["--spec-type", "ngram-simple", "-md", "x.gguf"], 2, "leave one of the two out"),
        (["-md", "/nowhere.gguf"], 3, "nowhere.gguf"),
    ],
)
def test_a_draft_model_that_cannot_be_is_told(model: str, more: list[str], code: int, sentence: str) -> None:
    done = inside("run", "-m", model, "-p", "a", *more)
    assert (done.code, done.out) == (code, "") and sentence in done.err.splitlines()[-1]


def test_a_stop_text_within_a_run_of_right_guesses(model: str) -> None:
    words = ("run", "-m", model, "--raw", "-p", "the bird " * 20, "-n", "200", "--temp", "0")
    whole = answered(*words)["text"]
    for start in range(3, len(whole) - 3, 40):
        stop = whole[start : start + 3]
        plain, guessed = (answered(*words, "--stop", stop, *more) for more in ((), ("--spec-type", "ngram-simple")))
        assert plain["text"] == guessed["text"] == whole[: whole.index(stop)]
        assert plain["tokens"] == guessed["tokens"]


def test_stats_say_where_the_weights_are_and_split_a_tokens_time(model: str) -> None:
    words = ("run", "-m", model, "--raw", "-p", "the bird", "-n", "6", "--temp", "0", "-t", "1", "--load-mode", "mmap")
    done = inside(*words, "--stats")
    lines = [line for line in done.err.splitlines() if re.match("weights |prompt |answer |a token|read |faults ", line)]
    assert [line.split()[0] for line in lines] == ["weights", "prompt", "answer", "a", "faults"], done.err
    assert lines[0].startswith("weights   mmap: ") and lines[0].endswith("the mapped file")
    assert re.fullmatch(r"a token   [\d.]+ ms: computing [\d.]+, waiting for the disk 0.0, choosing [\d.]+", lines[3])
    found = answered(*words)
    stats = found["stats"]
    assert stats["prompt"]["n_tokens"] == 1 and stats["prompt"]["n_rows"] == len(found["prompt_tokens"])
    assert stats["answer"]["n_tokens"] == stats["answer"]["n_steps"] == len(found["tokens"]) - 1 > 0
    parts = sum(stats["answer"][f"{name}_ns"] for name in ("compute", "disk", "sample"))
    assert parts == stats["answer"]["step_ns"] > stats["answer"]["sample_ns"] > 0


def test_n_0_reads_nothing_and_says_length(model: str) -> None:
    found = answered("run", "-m", model, "-p", "a", "-n", "0")
    assert found["tokens"] == [] and found["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--raw", "-p", "a " * 3000, "-c", "256"], 2, "--ctx-size"),
        (["--raw", "-p", ""], 3, "the prompt has no tokens"),
        (["-p", "a", "-c", "1000000000"], 4, "--ctx-size"),
        (["-f", "/nowhere.txt"], 3, "/nowhere.txt cannot be read"),
        (["-p", "a", "-ctk", "q8_0", "--raw", "-f", "x"], 2, "use one"),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_a_code(model: str, words: list[str], code: int, sentence: str) -> None:
    done = inside("run", "-m", model, *words)
    assert (done.code, done.out) == (code, "") and sentence in done.err.splitlines()[-1]


def test_a_prompt_that_is_not_utf8_is_told(model: str) -> None:
    done = inside("run", "-m", model, stdin=b"ab\xff")
    assert done.code == 3 and "stdin is not UTF-8 text: byte 2 is 0xff" in done.err


def test_a_line_that_is_not_utf8_is_told(model: str) -> None:
    done = inside("chat", "-m", model, "-n", "1", stdin=b"ab\xff\n")
    assert done.code == 3 and "stdin is not UTF-8 text: byte 2 of a line is 0xff" in done.err


def test_an_input_without_end_is_refused(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cli.local.MOST_INPUT_BYTES", 3 << 20)
    done = inside("run", "-m", model, "-f", "/dev/zero")
    assert done.code == 3 and "/dev/zero holds more than 3 MiB" in done.err


@pytest.mark.parametrize(
    ("changed", "more", "code", "sentence"),
    [
        ({}, ["-c", "1000000000"], 4, "--ctx-size"),
        ({"tokenizer.ggml.eos_token_id": 1 << 31}, [], 3, "eos_token_id is 2147483648"),
        ({"llama.context_length": 0}, [], 3, "context_length is 0"),
    ],
)
def test_what_the_header_forbids_is_said_before_the_compiler_is_loaded(
    changed: dict[str, Any], more: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    path = tiny_llama(tmp_path / "bad.gguf", **changed)
    program = (
        "import sys; from appliance.cli.main import main; code = main(sys.argv[1:]); "
        "print('numba' in sys.modules, code)"
    )
    words = [sys.executable, "-c", program, "run", "-m", str(path), "-p", "a", *more]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout == f"False {code}\n" and sentence in done.stderr


def test_logits_have_one_entry_per_token_and_feed_on_run_s_output(model: str) -> None:
    found = answered("logits", "-m", model, "--tokens", "5,6,7", "--top", "3")["positions"]
    assert [row["token"] for row in found] == [5, 6, 7]
    assert all(len(row["top"]) == 3 and row["top"][0][1] >= row["top"][1][1] for row in found)
    again = answered("logits", "-m", model, "--tokens-file", "-", "--top", "3", stdin='{"tokens": [5, 6, 7]}')
    assert again["positions"] == found


def test_logits_agree_with_the_logprobs_of_a_greedy_run(model: str) -> None:
    run = answered("run", "-m", model, "--raw", "-p", "the bird", "-n", "3", "--temp", "0", "--logprobs", "1")
    ids = ",".join(map(str, run["prompt_tokens"] + run["tokens"]))
    rows = answered("logits", "-m", model, "--tokens", ids, "--top", "1")["positions"]
    start = len(run["prompt_tokens"]) - 1
    assert [row["top"][0][0] for row in rows[start:-1]] == run["tokens"]


def test_a_token_outside_the_vocabulary_is_told(model: str) -> None:
    done = inside("logits", "-m", model, "--tokens", "1,99999")
    assert done.code == 2 and "token 99999 at place 1: the vocabulary has ids 0 to" in done.err


def test_bench_has_llama_bench_s_fields(model: str) -> None:
    words = ["-p", "16", "-n", "4", "-d", "0,300", "-t", "1,2", "-r", "2", "-ub", "256", "-o", "json"]
    done = inside("bench", "-m", model, *words)
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    tests = [(r["n_threads"], r["n_prompt"], r["n_gen"], r["n_depth"]) for r in rows]
    assert tests == [(t, *k) for t in (1, 2) for k in ((16, 0, 0), (16, 0, 300), (0, 4, 0), (0, 4, 300))]
    wanted = {"model_filename", "model_type", "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads",
              "type_k", "type_v", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts",
              "stddev_ts", "samples_ns", "samples_ts", "build_commit", "cpu_info", "backends"}  # fmt: skip
    assert all(wanted <= set(row) and len(row["samples_ts"]) == 2 and row["avg_ts"] > 0 for row in rows)
    assert all((row["ceiling_ts"] is None) == (row["n_gen"] == 0) for row in rows)
    assert "run 3/3" in done.err


def test_bench_times_every_op_by_layer_and_in_all(model: str) -> None:
    words = ["bench", "-m", model, "-p", "0", "-n", "8", "-d", "300", "-t", "2", "-r", "2", "-ub", "256"]
    rows = json.loads(inside(*words, "--per-op", "layer", "-o", "json").out)[0]["ops"]
    down = [r for r in rows if r["tensor"] == "ffn_down"]
    assert [r["layer"] for r in down] == [0, 1] and all(r["bytes"] == 192 * 128 * 18 / 32 for r in down)
    attend = [r for r in rows if r["op"] == "attend"]
    assert all(r["bytes"] == pytest.approx(305.5 * 2 * 2 * 64, rel=0.01) for r in attend), "the depth counts, and alone"
    assert sum(r["share"] for r in rows) == pytest.approx(1, abs=0.01) and any(r["op"] == "barrier" for r in rows)
    table = inside(*words, "--per-op").out
    assert "ffn_gate+ffn_up" in table and "waiting" in table and "of ceiling" in table
    assert inside(*words, "--per-op", "-o", "csv").code == 2


def test_chat_from_a_pipe_keeps_the_conversation_and_knows_its_commands(model: str) -> None:
    lines = "Hello\n/help\n/nonsense\nthe bird\n/reset\nHello\n/quit\nnever read\n"
    done = inside("chat", "-m", model, "-n", "4", "--temp", "0", stdin=lines)
    assert done.code == 0 and "/reset" in done.err and "no command /nonsense" in done.err
    hello = answered("run", "-m", model, "-p", "Hello", "-n", "4", "--temp", "0")["text"]
    assert done.out.startswith(hello + "\n") and done.out.endswith(hello + "\n")


@pytest.mark.parametrize("words", [["bench", "-p", "1000", "-n", "1000", "-r", "1000"], ["chat"]])
def test_an_interrupt_ends_a_command_at_once_with_130(model: str, words: list[str]) -> None:
    process = started(*words, "-m", model)
    try:
        if words[0] == "bench":  # the warm-up of the first test is over: the engine is in the middle of its work
            time.sleep(3)
        else:
            assert process.stdin is not None
            time.sleep(1)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=20)
        assert process.stderr is not None
        err = process.stderr.read()
        assert code == 130 and b"Traceback" not in err, err
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def _read_for(fd: int, seconds: float) -> bytes:
    return os.read(fd, 4096) if select.select([fd], [], [], seconds)[0] else b""


def _read_until(fd: int, word: bytes, seconds: float = 90) -> bytes:
    """Everything a terminal shows up to `word`; fails after `seconds`, a guard against hanging."""
    seen, until = b"", time.monotonic() + seconds
    while word not in seen:
        assert time.monotonic() < until, seen
        seen += _read_for(fd, 0.5)
    return seen


def _ask_until(fd: int, line: bytes, word: bytes) -> None:
    """Type `line` until `word` is shown: a Ctrl-C that is still on its way drops the line, as it should."""
    seen, until = b"", time.monotonic() + 90
    while word not in seen:
        assert time.monotonic() < until, seen
        os.write(fd, line)
        for _ in range(10):
            seen += _read_for(fd, 0.5)
            if word in seen:
                break


def _begin_a_long_answer(fd: int) -> None:
    """Ask until an answer of 200 bytes is still going: unread, it cannot end meanwhile; after a short one ask again."""
    answer, until = b"> ", time.monotonic() + 90
    while len(answer) < 200:
        assert time.monotonic() < until, answer
        if answer.endswith(b"> "):
            os.write(fd, b"Hello\r")
            answer = _read_until(fd, b"Hello").partition(b"Hello")[2]
        answer += _read_for(fd, 0.5)


def test_ctrl_c_in_a_terminal_stops_the_answer_not_the_chat(model: str) -> None:
    ours, theirs = pty.openpty()
    process = started("chat", "-m", model, "--temp", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-t", "1",
                      "--seed", "1", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
    os.close(theirs)
    try:
        _read_until(ours, b"> ")
        seen, until = b"", time.monotonic() + 90
        while b"/quit or Ctrl-D leaves" not in seen:  # a signal before readline listens is kept for its next key
            assert time.monotonic() < until, seen
            for _ in range(3):  # an impatient user: the second comes while the first is being answered
                process.send_signal(signal.SIGINT)
            seen += _read_for(ours, 1.0)
        _ask_until(ours, b"/help\r", b"this list")
        _begin_a_long_answer(ours)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
        _read_until(ours, b"(stopped)")
        _ask_until(ours, b"/help\r", b"this list")
        os.write(ours, b"/quit\r")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
