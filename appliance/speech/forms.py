"""The forms in which models write calls of tools: how each begins in an answer. Not here: one form's grammar.

A form reads one block, from behind its opener to its end, and tells `Calls` what it finds. A block that turns out to be
no call raises NotACall as long as nothing of it was told; what is wrong after that is a BadCall.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from appliance.speech.events import Began, Event, Wrote
from appliance.speech.grammar import Schemas

Tools = Mapping[str, Mapping[str, str]]
"""Name of a tool -> its parameters -> their JSON types ("" where the schema has no plain one)."""


class Calls:
    """Numbers the calls of an answer and collects their events; `most` None: as many as the model makes."""

    def __init__(self, most: int | None = None) -> None:
        self.events: list[Event] = []
        self.n = 0
        self.n_told = 0
        self._most = most

    def began(self, name: str) -> None:
        """A call of a tool that exists."""
        self.n += 1
        self.n_told += 1
        if self._most is None or self.n <= self._most:
            self.events.append(Began(self.n - 1, name))

    def wrote(self, text: str) -> None:
        """More of its arguments."""
        if text and (self._most is None or self.n <= self._most):
            self.events.append(Wrote(self.n - 1, text))


class Form(ABC):
    """One block of calls."""

    openers: tuple[str, ...] = ()
    """What begins a block, in the text."""
    closer = ""
    """What a model writes right behind a call, if it is the same for all of its models."""
    is_bare = False
    """Whether an answer that begins with `{` is tried as a call without any opener."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    @abstractmethod
    def feed(self, text: str, calls: Calls) -> str | None:
        """Take more of the block; the text behind it once it has ended, else None."""

    @abstractmethod
    def finish(self, calls: Calls) -> None:
        """The answer has ended inside the block: settle what can be, or raise as feed() does."""

    @classmethod
    @abstractmethod
    def begin(cls, name: str | None, template: str) -> str:
        """What an answer begins with that must call `name`, or any tool; it goes into the prompt, which the model
        continues. It ends where tokens end, before the space that a model writes with the next word."""

    @classmethod
    @abstractmethod
    def rest(cls, name: str | None, template: str, schemas: Schemas) -> str:
        """The grammar of how such an answer goes on, "" where it cannot be said in characters: a mark that is one
        token of the vocabulary is no text to a grammar."""


def behind(text: str, marker: str) -> str | None:
    """The text behind an end marker that may be left out; None while it may still come."""
    stripped = text.lstrip()
    if stripped.startswith(marker):
        return stripped[len(marker) :]
    return None if marker.startswith(stripped) else text


def partial(text: str, markers: tuple[str, ...]) -> int:
    """Length of the longest end of `text` that begins some marker without being all of it."""
    longest = min(len(text), max((len(marker) for marker in markers), default=1) - 1)
    return next((n for n in range(longest, 0, -1) if any(m.startswith(text[-n:]) for m in markers)), 0)
