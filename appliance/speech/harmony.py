"""Reads an answer in OpenAI's harmony format, where every message names its channel. Not here: other answers.

    <|channel|>analysis<|message|>thoughts<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
    <|start|>assistant<|channel|>final<|message|>text<|return|>

The prompt ends with `<|start|>assistant`. The tokens that end an answer are not shown. The receiver of a call may stand
before the channel as well. Text without any header counts as final.
"""

import re

from appliance.speech.arguments import BareArguments
from appliance.speech.events import BadCall, Event, Said, Thought, no_call
from appliance.speech.forms import Calls, partial
from appliance.speech.grammar import Schemas, json_calls
from appliance.speech.speech import CHANNEL, MESSAGE, Speech

START, END = "<|start|>", "<|end|>"
ENDS = (END, START, "<|call|>", "<|return|>", CHANNEL)
TO = re.compile(r"to=(?:functions\.)?([\w.:-]+)")
CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
HEADERS = (CHANNEL, START, MESSAGE, "to=")
MOST_HEADER = 400


class Harmony:
    """One answer; the interface is that of reader.Reader."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._text = speech.begun
        self._state = self._header
        self._calls = Calls(speech.most_calls)
        self._arguments: BareArguments | None = None
        self._channel = "final"
        self._has_said = self._is_final = self.was_broken_off = False

    @property
    def is_thinking(self) -> bool:
        return self._channel == "analysis" and self._state == self._body

    def feed(self, text: str) -> list[Event]:
        """What `text` settles. BadCall when a call cannot be what the model meant."""
        self._text += text
        while self._state():
            pass
        events, self._calls.events = self._calls.events, []
        return events

    def finish(self, was_cut: bool) -> list[Event]:
        """The rest. `was_cut`: the answer ended at a limit, so a call may be half there."""
        self._is_final = True
        events = self.feed("")
        try:
            if self._arguments is not None:
                self._arguments.end(self._calls)
        except BadCall:
            if not was_cut:
                raise
            self.was_broken_off = True
        if self._speech.must and not self._calls.n and not was_cut:
            raise no_call()
        return events + self._calls.events

    def _header(self) -> bool:
        stripped = self._text.lstrip()
        if not any(stripped.startswith(mark) or mark.startswith(stripped) for mark in HEADERS):
            self._channel, self._state = "final", self._body
            return True
        head, found, rest = self._text.partition(MESSAGE)
        if len(head) > MOST_HEADER + (0 if found else len(MESSAGE)):
            self._channel, self._state = "final", self._body
            return True
        if found:
            self._text = rest
            self._open(head)
            self._state = self._body
        elif self._is_final:
            self._text = ""  # a header that was cut
        return bool(found)

    def _open(self, head: str) -> None:
        named, to = CHANNEL_NAME.search(head), TO.search(head)
        self._channel = named[1] if named else "final"
        self._arguments = None
        if to is not None and to[1] in self._speech.tools:
            self._calls.began(to[1])
            self._arguments = BareArguments(to[1])
        elif self._channel != "analysis" and self._has_said:
            self._calls.events.append(Said("\n\n"))

    def _body(self) -> bool:
        ends = [(at, mark) for mark in ENDS if (at := self._text.find(mark)) >= 0]
        at, mark = min(ends, default=(-1, ""))
        n_held = 0 if mark or self._is_final else partial(self._text, ENDS)
        text = self._text[: at if mark else len(self._text) - n_held]
        self._text = self._text[len(text) :]
        if text:
            self._show(text)
        if not mark:
            return False
        if self._arguments is not None:
            self._arguments.end(self._calls)
            self._arguments = None
        if mark not in (CHANNEL, START):  # a header whose message was not ended
            self._text = self._text[len(mark) :]
        self._state = self._between
        return True

    def _between(self) -> bool:
        """Behind a message stands the next one's `<|start|>assistant`, or nothing."""
        stripped = self._text.lstrip()
        if stripped.startswith(START):
            whole = START + "assistant"
            if not stripped.startswith(whole) and whole.startswith(stripped) and not self._is_final:
                return False
            self._text = stripped.removeprefix(START).removeprefix("assistant")
        elif not stripped or (START.startswith(stripped) and not self._is_final):
            return False
        self._state = self._header
        return True

    def _show(self, text: str) -> None:
        if self._arguments is not None:
            if not self._arguments.is_done:
                self._arguments.feed(text, self._calls)
        elif self._channel == "analysis":
            self._calls.events.append(Thought(text))
        else:
            self._has_said = True
            self._calls.events.append(Said(text))


def begin(name: str | None) -> str:
    """What an answer begins with that must call `name`, or any tool."""
    to = f"{CHANNEL}commentary to=functions."
    return f"{to}{name} <|constrain|>json{MESSAGE}" if name else to


def rest(name: str | None, schemas: Schemas) -> str:
    """The grammar of how such an answer goes on; a name is followed by marks, which are no text to a grammar."""
    return json_calls(schemas, lambda _: "", "") if name else ""
