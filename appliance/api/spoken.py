"""One choice of a chat, read as it grows: text, reasoning, calls of tools. Not here: the chunks' shape (shapes.py)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from appliance.api.shapes import Answer
from appliance.request import Done, Piece
from appliance.speech.events import Began, Event, Said, Thought, Wrote
from appliance.speech.harmony import Harmony
from appliance.speech.reader import Reader
from appliance.speech.speech import Speech
from appliance.speech.toolset import reader_of

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(slots=True)
class Call:
    """A call of a tool with its arguments so far."""

    id: str
    name: str
    arguments: str = ""

    def whole(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(slots=True)
class ChatAnswer(Answer):
    """`text` is what was said, `thoughts` the reasoning before it; `n_thought` tokens went into that."""

    key: str = ""
    speech: Speech = field(default_factory=Speech)
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    n_thought: int = 0
    _deltas: list[dict[str, Any]] = field(default_factory=list)
    _reader: Reader | Harmony = field(init=False)

    def __post_init__(self) -> None:
        self._reader = reader_of(self.speech)

    def add(self, piece: Piece) -> None:
        was_thinking = self._reader.is_thinking
        self._take(self._reader.feed(piece.text))
        self.logprobs += piece.logprobs
        if was_thinking or self._reader.is_thinking:
            self.n_thought += len(piece.ids)

    def end(self, done: Done) -> None:
        self.done = done
        # The client's own stop string cuts like a limit; one of the speech's stands behind a whole call.
        was_stopped = done.stop_string is not None and done.stop_string not in self.speech.stop
        self._take(self._reader.finish(was_stopped or done.finish_reason == "length"))

    def take_deltas(self) -> list[dict[str, Any]]:
        """What has been settled since the last time, in order."""
        deltas, self._deltas = self._deltas, []
        return deltas

    @property
    def finish_reason(self) -> str | None:
        """OpenAI's word; calls that a limit has cut are cut."""
        if self.done is None:
            return None
        is_whole = self.calls and self.done.finish_reason == "stop" and not self._reader.was_broken_off
        return "tool_calls" if is_whole else self.done.finish_reason

    def message(self) -> dict[str, Any]:
        """The whole turn; content is null where there are only calls."""
        content = self.text if self.text or not self.calls else None
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [call.whole() for call in self.calls]
        return message

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Said):
                self.text += event.text
                self._deltas.append({"content": event.text})
            elif isinstance(event, Thought):
                self.thoughts += event.text
                self._deltas.append({"reasoning_content": event.text})
            elif isinstance(event, Began):
                call = Call(self._id(event.number), event.name)
                self.calls.append(call)
                self._deltas.append({"tool_calls": [{"index": event.number, **call.whole()}]})
            elif isinstance(event, Wrote):
                self.calls[event.number].arguments += event.text
                piece = {"index": event.number, "function": {"arguments": event.text}}
                self._deltas.append({"tool_calls": [piece]})

    def _id(self, index: int) -> str:
        """The same for every viewer of an answer. Nine letters and digits: Mistral's templates take no other."""
        number = int.from_bytes(sha256(f"{self.key}-{index}".encode()).digest())
        return "".join(LETTERS[number // 62**place % 62] for place in range(9))
