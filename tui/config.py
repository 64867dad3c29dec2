"""The program's own settings: flags, COLIBRI_TUI_*, the user's file, the system's file, defaults. Not here: terminals.

A fault in a file or a variable is told and the value below it holds; it never stops the start. Only a flag that is
wrong does, since somebody is there to read the answer.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tui.names import MODES, hint

PREFIX = "COLIBRI_TUI_"
SYSTEM = Path("/etc/colibri/tui.yaml")
# Read by the launcher on the host, before this program exists.
ELSEWHERE = {f"{PREFIX}CONTAINER"}
SWITCH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


def _switch(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError("on or off")
    return SWITCH[text.lower()]


def _auto(text: str) -> bool | None:
    if text.lower() == "auto":
        return None
    if text.lower() not in SWITCH:
        raise ValueError("auto, on or off")
    return SWITCH[text.lower()]


def _seconds(text: str) -> float | None:
    if text.lower() == "auto":
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?", text) or not 0.2 <= float(text) <= 60:
        raise ValueError("auto, or seconds between 0.2 and 60")
    return float(text)


def _minutes(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text):
        raise ValueError("whole minutes, 0 for never")
    return int(text)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}{hint(text, words)}")
        return text

    return read


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
        raise ValueError("an address such as http://127.0.0.1:8080")
    return text.rstrip("/")


def _word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("one word")
    return text


class Option(NamedTuple):
    """One setting: its default as text, how it is read, what it is for."""

    default: str
    read: Callable[[str], Any]
    help: str


OPTIONS: Mapping[str, Option] = {
    "url": Option("http://127.0.0.1:8080", _address, "address of the service"),
    "key_file": Option("", str, "file with the admin key: the service's keys, or the bare key"),
    "theme": Option("colibri-safe", _word, "colibri-safe, colibri-safe-light, or any theme of Textual"),
    "ascii": Option("auto", _auto, "plain signs only; auto: on a Linux console or without UTF-8"),
    "mono": Option("auto", _auto, "no colours; auto: when NO_COLOR is set"),
    "mouse": Option("off", _switch, "off leaves selecting text to the terminal"),
    "refresh_s": Option("auto", _seconds, "seconds between two questions; auto: 1, over SSH 2"),
    "idle_exit_min": Option("60", _minutes, "leave after so many minutes without a key; 0: never"),
    "start_screen": Option("dash", _one_of(*MODES), "the first screen"),
    "readonly": Option("off", _switch, "look, change nothing"),
    "confirm_note": Option("optional", _one_of("optional", "required"), "whether a swap asks why"),
}


@dataclass(frozen=True)
class Config:
    """The values that hold, where each came from, and what was wrong on the way."""

    values: Mapping[str, Any] = field(default_factory=lambda: {n: o.read(o.default) for n, o in OPTIONS.items()})
    origin: Mapping[str, str] = field(default_factory=dict)
    keymap: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def user_file(env: Mapping[str, str] = os.environ) -> Path:
    """Where a user's own settings lie."""
    home = env.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(home, "colibri", "tui.yaml").expanduser()
    except RuntimeError:  # no home folder to be found
        return Path(home, "colibri", "tui.yaml")


def load(flags: Mapping[str, str], env: Mapping[str, str] = os.environ, system: Path = SYSTEM) -> Config:
    """All layers, the weakest first; `flags` are texts too and were checked by `check_flag`."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    keymap: dict[str, str] = {}

    def put(layer: Mapping[str, str], where: Callable[[str], str]) -> None:
        for name, text in layer.items():
            try:
                values[name] = OPTIONS[name].read(text)
                origin[name] = where(name)
            except ValueError as expected:
                problems.append(f"{where(name)}: {name} is '{text[:60]}'; it should be {expected}")

    put({name: option.default for name, option in OPTIONS.items()}, lambda _name: "default")
    files = (system, user_file(env))
    for path in files:
        layer, keys, lines = _read_file(path, problems)
        put(layer, lambda name, path=path, lines=lines: f"{path} line {lines.get(name, 1)}")  # type: ignore[misc]
        keymap |= keys
    put(_read_env(env, problems), lambda name: _variable(name, env))
    put(flags, lambda name: f"--{name.replace('_', '-')}")
    return Config(values, origin, keymap, tuple(problems), files)


def check_flag(name: str) -> Callable[[str], str]:
    """For argparse: the text as it is, or a sentence that says what was expected."""
    import argparse

    def check(text: str) -> str:
        try:
            OPTIONS[name].read(text)
        except ValueError as expected:
            raise argparse.ArgumentTypeError(f"'{text}' should be {expected}") from None
        return text

    return check


def _variable(name: str, env: Mapping[str, str]) -> str:
    own = PREFIX + name.upper()
    return own if name != "url" or env.get(own) else "COLIBRI_URL"


def _read_env(env: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    found = {"url": env["COLIBRI_URL"]} if env.get("COLIBRI_URL") else {}
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in ELSEWHERE or not env[name]:
            continue
        key = name[len(PREFIX) :].lower()
        if key in OPTIONS:
            found[key] = env[name]
        else:
            known = [PREFIX + option.upper() for option in OPTIONS]
            problems.append(f"{name} is no setting{hint(name, known)}")
    return found


def _read_file(path: Path, problems: list[str]) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """The values, the keymap and the lines of one file; what is wrong goes to `problems`."""
    from tui.config_file import Wrong, read

    try:
        found = read(path)
    except Wrong as wrong:
        problems.append(str(wrong))
        return {}, {}, {}
    values: dict[str, str] = {}
    for name, (text, line) in found.values.items():
        if name in OPTIONS:
            values[name] = text
        else:
            problems.append(f"{path} line {line}: '{name}' is no setting{hint(name, [*OPTIONS, 'keymap'])}")
    return values, found.keymap, {name: line for name, (_text, line) in found.values.items()}
