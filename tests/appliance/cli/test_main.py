"""The command itself: help that teaches, exit codes, one line for every error. Not here: what a subcommand does."""

import importlib
import subprocess
from pathlib import Path

import pytest

from appliance.cli import main as cli
from appliance.cli.main import COMMANDS, main
from appliance.cli.parser import Parser
from engine.errors import DoesNotFit
from engine.kernels.isa import ISA
from tests.appliance.cli.shell import ARGV, colibri, environment


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_teaches_with_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "colibri run -p" in out and all(f"  {name} " in out for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("colibri 0.")
    assert second == ISA.words


def test_the_version_says_why_the_kernels_cannot_run() -> None:
    """A version that fails helps nobody to report what failed."""
    other = "v3" if ISA.is_arm else "neon"
    done = colibri("version", COLIBRI_ISA=other)
    assert done.code == 0 and f"COLIBRI_ISA={other} is for other CPUs" in done.out.splitlines()[1]
    assert colibri("run", "-p", "x", COLIBRI_ISA=other).code == 2


def test_no_command_is_wrong_usage_and_the_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and "usage: colibri" in streams.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_command_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"appliance.cli.{COMMANDS[name][0]}")
    assert (name, COMMANDS[name][1]) == (module.NAME, module.HELP)
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: colibri {name}" in out and "examples:\n" in out and "Exit code: 0 ok, 1 " in out


def test_no_option_of_a_command_is_taken_twice() -> None:
    for module, _ in COMMANDS.values():
        importlib.import_module(f"appliance.cli.{module}").add_arguments(Parser(prog="colibri"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["serv"], "there is no command 'serv'; did you mean 'serve'?"),
        (["run", "--thread", "2"], "there is no option '--thread'; did you mean '--threads'?"),
        (["run", "-p"], "expected one argument"),
        (["run", "--threads", "x", "-p", "a"], "flag --threads=x"),
        (["run", "-p", "a", "-f", "b"], "-p and -f both give a prompt"),
        (["run", "-p", "a", "--logprobs", "3"], "--logprobs needs --json"),
        (["run", "-p", "a", "--logprobs", "99", "--json"], "0 to 20 is allowed"),
        (["run", "-p", "a", "--top-k", "99999999999"], "flag --top-k=99999999999"),
        (["run", "-p", "a", "--repeat-last-n", "99999999999"], "flag --repeat-last-n=99999999999"),
        (["run", "-p", "a", "--profile", "longdoc"], "no profile 'longdoc'"),
        (["logits"], "one of --tokens LIST and --tokens-file FILE"),
        (["logits", "--tokens", "1,x"], "'x' is no token id"),
        (["bench", "-p", "0", "-n", "0"], "nothing to measure"),
        (["bench", "-p", "8-2"], "must rise"),
        (["config"], "arguments are required"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and sentence in streams.err
    assert streams.err.startswith("colibri: error: ") and streams.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench", "logits"])
def test_a_missing_model_is_exit_3_before_anything_is_loaded(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"run": ["-p", "a"], "logits": ["--tokens", "1"]}.get(command, [])
    assert main([command, "-m", "/nowhere/model.gguf", *more]) == 3
    assert "there is no file /nowhere/model.gguf" in capsys.readouterr().err


def test_a_text_file_as_model_is_exit_3(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("Dear diary, today I was loaded as a model.\n" * 20)
    done = colibri("run", "-m", str(tmp_path / "notes.gguf"), "-p", "a")
    assert done.code == 3 and done.out == "" and len(done.err.splitlines()) == 1


class _Broken:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, words: list[str]) -> int:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (DoesNotFit("too large\nby far"), 4, "colibri: error: too large by far\n"),
        (MemoryError(), 4, "colibri: error: the machine has no memory left"),
        (ZeroDivisionError("division by zero"), 1, "colibri: error: ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_whatever_is_raised_becomes_a_code_and_a_sentence(
    error: BaseException, code: int, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_dispatch", _Broken(error))
    assert main(["run"]) == code
    err = capsys.readouterr().err
    assert err.startswith(sentence) and "Traceback" not in err


def test_the_traceback_is_there_for_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_dispatch", _Broken(ZeroDivisionError("x")))
    monkeypatch.setenv("COLIBRI_DEBUG", "1")
    assert main(["run"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_who_left_is_no_error() -> None:
    line = " ".join(ARGV) + " config explain | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 0 and done.stderr == b"" and done.stdout.startswith(b"SETTING")


def test_closed_streams_are_nobody_s_and_no_error() -> None:
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        words = ["sh", "-c", f'"$@" {closed}', "sh", *ARGV, "config", "explain"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    words = ["sh", "-c", '"$@" >/dev/full', "sh", *ARGV, "config", "explain"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("colibri: error: there is no space left on the device")
    assert len(done.stderr.splitlines()) == 1
