"""Which kind of terminal this is, decided before Textual is imported. Not here: how each kind is drawn (looks.py).

    full   COLORTERM=truecolor, or a TERM of 256 colours        16     any other TERM
    mono   NO_COLOR, or asked for                                ascii  TERM=linux, no UTF-8, or asked for
    none   TERM=dumb, or no terminal: the program refuses
"""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

from tui.looks import Colours, Looks

# Terminals of 24-bit colour whose TERM does not say 256color, as it arrives over SSH without COLORTERM.
RICH_TERMS = ("kitty", "ghostty", "alacritty", "foot", "wezterm", "direct")

CHARSETS = ("LC_ALL", "LC_CTYPE", "LANG")  # the first that is set decides


class Tier(NamedTuple):
    """What was found out: the looks, the colour system for Textual, and why it is not the best of them."""

    looks: Looks
    color_system: str
    reason: str


def refusal(env: Mapping[str, str], has_tty: bool) -> str:
    """Why no screen can be drawn here, or an empty string."""
    if not has_tty:
        return "this is no terminal (standard input and output must be one; over SSH use ssh -t)"
    term = env.get("TERM", "")
    return f"TERM is {term or 'not set'}" if term in ("", "dumb", "unknown") else ""


def choose(env: Mapping[str, str], *, ascii: bool | None = None, mono: bool | None = None, dark: bool = True) -> Tier:
    """The tier of a terminal; None leaves a choice to what the environment says."""
    term, colorterm = env.get("TERM", ""), env.get("COLORTERM", "").lower()
    is_true = colorterm in ("truecolor", "24bit") or term.endswith("-direct")
    is_rich = is_true or term.endswith("256color") or any(name in term for name in RICH_TERMS)
    no_color = bool(env.get("NO_COLOR"))
    colours: Colours = "full" if is_rich else "16"
    why = []
    if not is_rich:
        why.append(f"16 colours: TERM is {term} and COLORTERM says nothing")
    if mono or (mono is None and no_color):
        colours = "mono"
        why = ["no colours: " + ("asked for" if mono else "NO_COLOR is set")]
    plain = ascii
    if ascii is None:
        charset = next((env[name] for name in CHARSETS if env.get(name)), "")
        is_utf8 = "utf-8" in charset.lower() or "utf8" in charset.lower()
        plain = term == "linux" or not is_utf8
        if plain:
            why.append("plain signs: " + ("a Linux console" if term == "linux" else f"LANG is {charset or 'not set'}"))
    system = "truecolor" if is_true else "256" if is_rich else "standard"
    return Tier(Looks(colours, bool(plain), dark), system, "; ".join(why))


def given() -> dict[str, str]:
    """The environment as this process was given it: Python adds an LC_CTYPE of its own where the locale is C."""
    env = dict(os.environ)
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        return env
    first = {pair.split(b"=", 1)[0] for pair in raw.split(b"\0")}
    return {name: text for name, text in env.items() if name not in CHARSETS or os.fsencode(name) in first}


def prepare(env: MutableMapping[str, str], tier: Tier) -> None:
    """Set what Textual reads while it is imported. No animation, 15 frames a second: every frame costs a slow link."""
    env["TEXTUAL_ANIMATIONS"] = "none"
    env["TEXTUAL_SMOOTH_SCROLL"] = "0"
    env.setdefault("TEXTUAL_FPS", "15")
    env["TEXTUAL_COLOR_SYSTEM"] = tier.color_system
    # A theme of the terminal's own colours from the first moment: Textual decides by it what NO_COLOR means.
    env["TEXTUAL_THEME"] = "textual-dark" if tier.looks.colours == "full" else "ansi-dark"
    env.pop("NO_COLOR", None)  # the looks know it; Textual would turn colours into greys
