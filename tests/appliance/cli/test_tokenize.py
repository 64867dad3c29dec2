"""`colibri tokenize` as a user meets it. Not here: whether the ids are right (tests/engine/tokenizer)."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.appliance.cli.shell import ARGV, colibri, environment, inside
from tests.tiny import tiny_llama


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny_llama(tmp_path / "m.gguf", **{"tokenizer.ggml.add_bos_token": True}))


def test_text_to_ids_and_back(model: str) -> None:
    done = inside("tokenize", "-m", model, "-p", "the bird 😀<|im_end|>", "--json")
    found = json.loads(done.out)
    assert (done.code, found["n_tokens"]) == (0, len(found["tokens"]))
    assert found["tokens"][0] == 1 and found["tokens"][-1] == 2 and found["pieces"][-1] == "<|im_end|>"
    ids = " ".join(map(str, found["tokens"]))
    assert inside("tokenize", "-m", model, "--ids-to-text", "-p", ids).out == "<|im_start|>the bird 😀<|im_end|>\n"
    back = json.loads(inside("tokenize", "-m", model, "--ids-to-text", "--no-special", "--json", stdin=f"[{ids}]").out)
    assert (back["text"], back["tokens"]) == ("the bird 😀", found["tokens"])


def test_no_special_takes_names_as_text(model: str) -> None:
    found = json.loads(inside("tokenize", "-m", model, "-p", "<|im_end|>", "--no-special", "--json").out)
    assert not {1, 2} & set(found["tokens"]) and "".join(found["pieces"]) == "<|im_end|>"


def test_a_file_is_taken_byte_for_byte_and_shown_line_by_line(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a\r\n\x1b[2J\n")
    done = inside("tokenize", "-m", model, "-f", str(tmp_path / "t.txt"))
    assert "\x1b" not in done.out, "a text must not move the reader's cursor"
    ids = [int(line.split()[0]) for line in done.out.splitlines()]
    assert inside("tokenize", "-m", model, "--ids-to-text", "-p", f"{ids}").out == "<|im_start|>a\r\n\x1b[2J\n\n"


@pytest.mark.parametrize(
    ("words", "code", "seen"),
    [
        (["-p", "a", "-f", "b"], 2, "use one"),
        (["-f", "/nowhere/at.all"], 3, "cannot be read"),
        (["--ids-to-text", "-p", "1 two"], 2, "'two' is no token id"),
        (["--ids-to-text", "-p", ""], 2, "there is no token id"),
        (["--ids-to-text", "-p", "1 320"], 2, "outside the vocabulary"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(model: str, words: list[str], code: int, seen: str) -> None:
    done = inside("tokenize", "-m", model, *words)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert seen in done.err


def test_an_argument_means_the_same_in_the_c_locale(model: str) -> None:
    words = ("tokenize", "-m", model, "--json", "-p", "你好 é")
    plain = colibri(*words, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert plain.code == 0 and plain.out == colibri(*words, PYTHONUTF8="1").out


def test_an_argument_that_is_not_utf8_is_told() -> None:
    done = subprocess.run([*ARGV, "tokenize", "-p", b"ab\xff"], capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 2 and b"-p is not UTF-8 text: byte 2 is 0xff" in done.stderr
