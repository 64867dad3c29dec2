"""The words of the command line: what each does, what may follow it. Not here: the line itself (dialogs/command.py)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tui.names import MODES, hint

if TYPE_CHECKING:
    from tui.app import ColibriApp


class Refused(Exception):
    """A command that cannot be done as typed; the message says what was expected."""


class Command(NamedTuple):
    """One word: what may follow, what it is for, and what it does with the words that follow."""

    follows: str
    help: str
    run: Callable[["ColibriApp", list[str]], None]
    is_changing: bool = False
    takes_profile: bool = False


def run(program: "ColibriApp", line: str) -> None:
    """Do what was typed; Refused with a sentence when that is not possible."""
    word, *rest = line.strip().lstrip(":").split() or [""]
    if not word:
        return
    command = COMMANDS.get(word)
    if command is None:
        raise Refused(f"there is no command '{word[:40]}'{hint(word, COMMANDS)}")
    if command.is_changing and (why := program.why_not()):
        raise Refused(f"{word}: not now, {why}")
    command.run(program, rest)


def completions(line: str, profiles: list[str]) -> list[tuple[str, str]]:
    """What the line could become, with a few words for each."""
    word, gap, rest = line.lstrip(":").partition(" ")
    if not gap:
        return [(name, f"{c.follows:<18} {c.help}".strip()) for name, c in COMMANDS.items() if name.startswith(word)]
    command = COMMANDS.get(word)
    if command is not None and command.takes_profile and " " not in rest.strip():
        return [(f"{word} {name}", "") for name in profiles if name.startswith(rest.strip())]
    return [(line, f"{command.follows}  {command.help}")] if command is not None else []


def _go(mode: str) -> Callable[["ColibriApp", list[str]], None]:
    def go(program: "ColibriApp", rest: list[str]) -> None:
        _at_most(rest, 0, mode)
        program.action_go(mode)

    return go


def _at_most(rest: list[str], n: int, word: str) -> None:
    if len(rest) > n:
        raise Refused(f"{word} takes {n or 'no'} word{'s' * (n != 1)}, not '{' '.join(rest)[:60]}'")


def _on(rest: list[str], word: str) -> bool:
    if len(rest) != 1 or rest[0] not in ("on", "off"):
        raise Refused(f"{word} should be followed by on or off")
    return rest[0] == "on"


def _swap(program: "ColibriApp", rest: list[str]) -> None:
    program.start_swap(rest[0] if rest else None, " ".join(rest[1:]))


def _on_screen(mode: str, word: str, least: int, most: int) -> Callable[["ColibriApp", list[str]], None]:
    """A command that the screen of a mode does itself."""

    def do(program: "ColibriApp", rest: list[str]) -> None:
        if not least <= len(rest) <= most:
            raise Refused(f"{word} should be followed by {COMMANDS[word].follows}")
        program.tell_screen(mode, word, rest)

    return do


def _theme(program: "ColibriApp", rest: list[str]) -> None:
    _at_most(rest, 1, "theme")
    if not rest:
        program.action_theme()
    elif fault := program.use_theme(rest[0]):
        raise Refused(fault)


def _ascii(program: "ColibriApp", rest: list[str]) -> None:
    program.use_looks(ascii=_on(rest, "ascii"))


def _mono(program: "ColibriApp", rest: list[str]) -> None:
    program.use_looks(mono=_on(rest, "mono"))


def _rate(program: "ColibriApp", rest: list[str]) -> None:
    try:
        seconds = float(rest[0]) if len(rest) == 1 else 0.0
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 60:
        raise Refused("rate should be followed by seconds between 0.2 and 60")
    program.use_rate(seconds)


def _readonly(program: "ColibriApp", rest: list[str]) -> None:
    if not _on(rest, "readonly") and program.is_readonly:
        raise Refused("a read-only view stays one; start the program again for the other")
    program.set_readonly()


def _report(program: "ColibriApp", rest: list[str]) -> None:
    _at_most(rest, 2, "report")
    if rest[:1] == ["swap"]:
        program.tell_screen("swap", "report", rest[1:])
    else:
        program.write_report()


def _help(program: "ColibriApp", rest: list[str]) -> None:
    program.action_help()


def _quit(program: "ColibriApp", rest: list[str]) -> None:
    program.leave()


COMMANDS: dict[str, Command] = {
    "swap": Command("PROFILE [NOTE]", "change the profile in force; asks first", _swap, True, True),
    "plan": Command("PROFILE", "what it needs, and whether it fits", _on_screen("profiles", "plan", 1, 1), False, True),
    "edit": Command("PROFILE", "its file", _on_screen("profiles", "edit", 1, 1), False, True),
    "diff": Command("PROFILE PROFILE", "two profiles side by side", _on_screen("profiles", "diff", 2, 2), False, True),
    "logs": Command("[SOURCE [LEVEL]]", "log lines", _on_screen("logs", "logs", 0, 2)),
    **{mode: Command("", f"screen {i}", _go(mode)) for i, mode in enumerate(MODES, 1) if mode != "logs"},
    "rate": Command("SECONDS", "time between two questions", _rate),
    "theme": Command("[NAME]", "colours", _theme),
    "ascii": Command("on|off", "plain signs", _ascii),
    "mono": Command("on|off", "no colours", _mono),
    "readonly": Command("on", "look, change nothing", _readonly),
    "report": Command("[swap ID]", "what is known, into a file", _report),
    "help": Command("", "the keys of this screen", _help),
    "q": Command("", "leave", _quit),
}
