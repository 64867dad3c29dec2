"""The command `colibri`: finds the subcommand, loads only that one, turns errors into one line and an exit code.

Exit codes: 0 ok, 1 the work failed, 2 wrong usage, 3 bad model or input file, 4 does not fit, 5 cannot reach or port
taken, 130 interrupted. Results go to stdout, talk and progress to stderr. Not here: any subcommand.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSPC
from importlib import import_module

# name: (module, the sentence of the overview); the modules load numba, aiohttp or pydantic, so not before they are run.
COMMANDS = {
    "serve": ("serve", "answer over HTTP, in OpenAI's shape"),
    "run": ("run", "answer one prompt"),
    "batch": ("batch", "rows by the thousand: answer a file, tag a table, review the doubtful ones"),
    "chat": ("chat", "talk with the model in the terminal"),
    "bench": ("bench", "measure prompt and answer speed"),
    "tokenize": ("tokenize", "text to token ids and back"),
    "logits": ("logits", "the likeliest next tokens after each given token"),
    "inspect": ("inspect", "what a GGUF file holds"),
    "plan": ("plan", "where the memory will go, and whether it fits"),
    "relayout": ("relayout", "a copy of a model whose experts lie together on disk, and back"),
    "config": ("config", "every setting in force, and where it came from"),
    "profile": ("profile", "named sets of settings: list, check, compare, change, put in force"),
    "keys": ("keys", "who may use the service: add, list, revoke keys"),
    "status": ("status", "what the running service does, as plain text"),
    "tui": ("tui", "the terminal program: watch the service, edit and change profiles"),
    "host": ("host", "show or tune the kernel's huge pages and CPU governor, with undo"),
}

EXAMPLES = """\
Try:
  colibri run -p "What is the capital of France?"        the bundled model, or the one in COLIBRI_MODEL
  colibri run -m model.gguf -f letter.txt -n 200         a prompt from a file, at most 200 tokens
  cat letter.txt | colibri run --raw --temp 0            no chat template, the likeliest tokens
  colibri chat -m model.gguf                             several turns; /help inside
  colibri serve -m model.gguf --port 8080                then: curl http://127.0.0.1:8080/v1/chat/completions ...
  colibri bench -m model.gguf -p 512 -n 128 -t 2,4       speed for 2 and 4 threads
  colibri plan -m model.gguf -c 32768                    does a context of 32768 fit?
  colibri batch run -i in.jsonl -o out.jsonl             every row of a file; run again to go on
  colibri config explain --profile long-doc              every knob, its value and its reason
  colibri profile apply long-doc                         change what a running service serves
"""

EXIT_CODES = """\
Exit code: 0 ok, 1 the work failed, 2 wrong usage, 3 bad model or input file,
4 does not fit into memory, 5 cannot reach or port taken, 130 interrupted.
Results go to stdout, talk and progress to stderr.
"""


def overview() -> str:
    """What `colibri --help` prints."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {words}" for name, (_, words) in COMMANDS.items())
    return (
        "usage: colibri COMMAND [OPTION ...]\n\nRuns GGUF language models on the CPU.\n\n"
        f"Commands (each explains itself: colibri COMMAND --help):\n{rows}\n\n{EXAMPLES}\n"
        "Settings: default < profile < COLIBRI_* in the environment < option. Nothing is ever fetched from a network.\n"
        + EXIT_CODES
    )


def version() -> str:
    """The distribution's version; in a checkout that nobody installed, the one in pyproject.toml."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed
    from pathlib import Path

    try:
        return installed("colibri-runtime")
    except PackageNotFoundError:
        import tomllib

        text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
        return str(tomllib.loads(text)["project"]["version"])


def _kernels() -> str:
    """Which instructions the kernels use here and why, or why they cannot run."""
    from engine.errors import UsageError

    try:
        from engine.kernels.isa import ISA
    except UsageError as error:
        return error.message
    return ISA.words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing but an exit code leaves here."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a model may say what the terminal's encoding cannot
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        if argv is None:
            _leave(130)
        return 130
    except BrokenPipeError:
        # Whoever read our output has had enough; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _told(error)


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else ""
    if name in ("-h", "--help", "help"):
        if name == "help" and words[1:2] and words[1] in COMMANDS:
            return _dispatch([words[1], "--help"])
        print(overview(), end="")
        return 0
    if name in ("--version", "-V", "version"):
        print(f"colibri {version()}\n{_kernels()}")
        return 0
    if not words:
        print(overview(), end="", file=sys.stderr)
        return 2
    if name not in COMMANDS:
        from appliance.names import hint

        return _say(f"there is no command '{name}'{hint(name, COMMANDS)} (colibri --help lists them)", 2)
    from appliance.cli.parser import Parser

    module = import_module(f"appliance.cli.{COMMANDS[name][0]}")
    parser = Parser(prog=f"colibri {name}", description=f"{COMMANDS[name][1][:1].upper()}{COMMANDS[name][1][1:]}.")
    module.add_arguments(parser)
    parser.epilog = "\n\n".join(filter(None, [parser.epilog and parser.epilog.rstrip(), EXIT_CODES]))
    try:
        args = parser.parse_args(words[1:])
    except SystemExit as stop:
        return int(stop.code or 0)
    return int(module.run(args))


def _open_closed_streams() -> None:
    """A stream that the caller closed (>&-) is None in Python; nobody reads or writes there then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _told(error: Exception) -> int:
    if os.environ.get("COLIBRI_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    from engine.errors import ColibriError

    if isinstance(error, ColibriError):
        return _say(error.message, error.exit_code)
    if isinstance(error, MemoryError):
        return _say("the machine has no memory left for this; a smaller context or --load-mode mmap needs less", 4)
    if isinstance(error, OSError) and error.errno == ENOSPC:
        return _say(f"there is no space left on the device for {error.filename or 'what has to be written'}", 1)
    words = " ".join(str(error).split())[:300]
    return _say(f"{type(error).__name__}: {words or 'no more is known'} (COLIBRI_DEBUG=1 shows where)", 1)


def _leave(code: int) -> None:
    """End the process now: the engine's thread may be in native code that does not look up for seconds."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _say(sentence: str, code: int) -> int:
    """One line; what a file or a service put into it must not move the cursor."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(sentence.split()))
    print(f"colibri: error: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
