"""What is read from an answer, piece by piece, and what can be wrong with a call. Not here: how it is read."""

from typing import NamedTuple

from engine.errors import ColibriError


class Thought(NamedTuple):
    """Reasoning, before the answer proper."""

    text: str


class Said(NamedTuple):
    """Text for the user."""

    text: str


class Began(NamedTuple):
    """A call of the tool of this name; calls are numbered from 0."""

    number: int
    name: str


class Wrote(NamedTuple):
    """A piece of that call's arguments; all of them together are JSON, unless the answer was cut."""

    number: int
    text: str


Event = Thought | Said | Began | Wrote


class NotACall(Exception):
    """What looked like a call is none, or calls what nobody offered: it is text after all."""


class BadCall(ColibriError):
    """The model began a call of a tool that exists and did not write JSON, or did not call where it must."""

    code = "invalid_tool_call"


def no_call() -> BadCall:
    return BadCall("the model was to call a tool and named none that was offered; ask again with another seed")


def bad_call(name: str) -> BadCall:
    return BadCall(f"the model called '{name}' with arguments that are no JSON; ask again with another seed")
