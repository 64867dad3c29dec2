"""Which kind of terminal is chosen from the environment, and what is refused."""

import pytest

from tui.looks import Looks
from tui.tier import choose, prepare, refusal

UTF8 = {"LANG": "en_GB.UTF-8"}
FULL, SIXTEEN = Looks("full"), Looks("16")


@pytest.mark.parametrize(
    "env,looks,system",
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", **UTF8}, FULL, "truecolor"),
        ({"TERM": "xterm-256color", **UTF8}, FULL, "256"),
        ({"TERM": "tmux-256color", **UTF8}, FULL, "256"),
        ({"TERM": "xterm-kitty", **UTF8}, FULL, "256"),
        ({"TERM": "xterm", "COLORTERM": "24bit", **UTF8}, FULL, "truecolor"),
        ({"TERM": "xterm", **UTF8}, SIXTEEN, "standard"),
        ({"TERM": "vt220", "LC_ALL": "C.utf8"}, SIXTEEN, "standard"),
        ({"TERM": "linux", **UTF8}, Looks("16", ascii=True), "standard"),
        ({"TERM": "xterm", "LANG": "C"}, Looks("16", ascii=True), "standard"),
        ({"TERM": "xterm"}, Looks("16", ascii=True), "standard"),
        ({"TERM": "xterm", "LC_ALL": "C", **UTF8}, Looks("16", ascii=True), "standard"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1", **UTF8}, Looks("mono"), "256"),
        ({"TERM": "xterm-256color", "NO_COLOR": "", **UTF8}, FULL, "256"),
    ],
)
def test_the_environment_decides(env: dict[str, str], looks: Looks, system: str) -> None:
    tier = choose(env)
    assert (tier.looks, tier.color_system) == (looks, system)
    assert bool(tier.reason) == (looks != FULL), "what is not the best says why"


def test_what_was_asked_for_wins_over_the_environment() -> None:
    rich = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **UTF8}
    assert choose(rich, ascii=True, mono=True).looks == Looks("mono", ascii=True)
    assert choose({"TERM": "linux", "NO_COLOR": "1"}, ascii=False, mono=False).looks == SIXTEEN


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_that_can_draw_nothing_is_refused(term: str) -> None:
    assert refusal({"TERM": term}, has_tty=True)
    assert not refusal({"TERM": "xterm"}, has_tty=True)
    assert "no terminal" in refusal({"TERM": "xterm"}, has_tty=False)


def test_textual_is_told_before_it_is_imported() -> None:
    env = {"NO_COLOR": "1", "TERM": "xterm", **UTF8}
    prepare(env, choose(env))
    assert env["TEXTUAL_ANIMATIONS"] == "none" and env["TEXTUAL_THEME"] == "ansi-dark" and "NO_COLOR" not in env
