"""`colibri chat`: several turns in the terminal, or one per line from a pipe. Not here: chats over HTTP."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from appliance.cli.flags import ENGINE, MODEL, SAMPLING, TEMPLATE, add_settings, resolved
from appliance.cli.interrupts import Interrupts
from appliance.cli.local import BadInputFile, End, Event, Local, Prefill, checked_text
from appliance.cli.progress import Progress
from engine.errors import ColibriError

if TYPE_CHECKING:
    from appliance.speech.events import Event as Read
    from appliance.speech.harmony import Harmony
    from appliance.speech.reader import Reader
    from engine.sampling import Sampling

NAME = "chat"
HELP = "talk with the model in the terminal"
WORDS = """\
/help    this list
/reset   forget the conversation, keep the system message
/quit    leave (so does Ctrl-D)
Ctrl-C stops an answer; what was said so far stays in the conversation.
A line that ends with \\ goes on in the next one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri chat\n  colibri chat -m model.gguf --system 'Answer in German.' --temp 0.2\n"
        "  printf 'Hello\\nWhat did I say?\\n' | colibri chat --temp 0\n\nInside:\n" + WORDS
    )
    parser.add_argument("-sys", "--system", metavar="TEXT", help="a system message before the first turn")
    add_settings(parser, MODEL, ENGINE, TEMPLATE, SAMPLING)


def run(args: argparse.Namespace) -> int:
    settings = resolved(args).settings
    sampling = settings.sampling()
    is_terminal = sys.stdin.isatty()
    local = Local(settings)
    if is_terminal:
        print(f"{local.path.name}, context {local.engine.info.n_ctx}. /help explains.", file=sys.stderr)
    start = [{"role": "system", "content": checked_text(args.system, "--system")}] if args.system else []
    # A pipe has nobody who could go on: there a Ctrl-C ends the command, as everywhere.
    with Interrupts() if is_terminal else nullcontext() as interrupts:
        _talk(local, start, sampling, settings.n_predict, interrupts)
    local.close()
    return 0


def _talk(local: Local, start: list[dict[str, str]], sampling: "Sampling", n_predict: int,
          interrupts: Interrupts | None) -> None:  # fmt: skip
    messages = list(start)
    for line in _turns(interrupts):
        if line in ("/quit", "/exit"):
            break
        if line == "/reset":
            messages = list(start)
            print("Forgotten.", file=sys.stderr)
        elif line in ("/help", "/?"):
            print(WORDS, end="", file=sys.stderr)
        elif line.startswith("/") and " " not in line and "/" not in line[1:]:
            print(f"there is no command {line}; /help lists them", file=sys.stderr)
        elif line.strip():
            try:
                turn = [*messages, {"role": "user", "content": checked_text(line, "the line")}]
                answer = _answer(local, turn, sampling, n_predict, interrupts)
            except ColibriError as error:
                # A full context ends the conversation, not the program; a pipe has nobody who could go on.
                if interrupts is None:
                    raise
                print(f"{error.message} (/reset starts anew)", file=sys.stderr)
                continue
            messages = [*turn, answer]


def _answer(local: Local, messages: list[dict[str, str]], sampling: "Sampling", n_predict: int,
            interrupts: Interrupts | None) -> dict[str, str]:  # fmt: skip
    """Print the answer as it comes, its reasoning on stderr; Ctrl-C ends it where it is. The turn for the history."""
    from appliance.speech.toolset import reader_of, shown_ids

    turn = {"role": "assistant", "content": ""}
    progress = Progress()
    try:
        with interrupts.heard() if interrupts else nullcontext():
            ids, speech = local.chat(messages)
            events = local.generate(ids, sampling, n_predict, shown=shown_ids(local.text.vocab, speech))
            # Closed here and now: an interrupted generator that waits for the collector keeps the engine busy.
            with closing(events):
                _print(events, turn, reader_of(speech), progress)
    except KeyboardInterrupt:
        if interrupts is None:
            raise
        progress.close()
        print(" (stopped)", end="", file=sys.stderr, flush=True)
    sys.stdout.write("\n")
    sys.stdout.flush()
    return turn


def _print(events: Iterator[Event], turn: dict[str, str], reader: "Reader | Harmony", progress: Progress) -> None:
    for event in events:
        if isinstance(event, Prefill):
            if sys.stderr.isatty() and event.done < event.total:
                progress.say_over(f"reading {event.done}/{event.total}")
            continue
        progress.close()
        found = reader.feed(event.text)
        if isinstance(event, End):
            found += reader.finish(was_cut=event.finish_reason == "length")
        for piece in found:
            _show(turn, piece)
        if isinstance(event, End) and event.finish_reason == "length":
            print("\n(cut: -n or the context is used up)", end="", file=sys.stderr, flush=True)


def _show(turn: dict[str, str], piece: "Read") -> None:
    """Thoughts are no part of what is said: they go where talk goes, and a pipe gets the answer alone."""
    from appliance.speech.events import Said, Thought

    if isinstance(piece, Thought):
        turn["reasoning_content"] = turn.get("reasoning_content", "") + piece.text
        print(f"\x1b[2m{piece.text}\x1b[0m" if sys.stderr.isatty() else piece.text, end="", file=sys.stderr, flush=True)
    elif isinstance(piece, Said):
        if not turn["content"] and "reasoning_content" in turn:
            print("\n", file=sys.stderr)
        turn["content"] += piece.text
        sys.stdout.write(piece.text)
        sys.stdout.flush()


def _turns(interrupts: Interrupts | None) -> Iterator[str]:
    """What the user says, line by line; ends with the input. Without `interrupts` it comes from a pipe."""
    if interrupts:
        import readline  # arrow keys and history for input(), by being imported

        del readline
    parts: list[str] = []
    while True:
        try:
            if interrupts:
                interrupts.forget()
                with interrupts.heard():
                    line = input("... " if parts else "> ")
            else:
                line = _piped()
        except KeyboardInterrupt:
            if interrupts is None:
                raise
            parts = []
            print("\n(/quit or Ctrl-D leaves)", file=sys.stderr)
            continue
        except EOFError:
            if interrupts:
                print(file=sys.stderr)
            if parts:
                yield "\n".join(parts)
            return
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        yield "\n".join([*parts, line])
        parts = []


def _piped() -> str:
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        where = f"byte {error.start} of a line is 0x{line[error.start]:02x}"
        raise BadInputFile(f"stdin is not UTF-8 text: {where}") from None
