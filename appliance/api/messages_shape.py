"""/v1/messages' answer, plain and as events, in Anthropic's shape. Not here: HTTP, what a request takes.

An answer is a list of blocks (thinking, text, tool_use) in the order in which they came. In a stream each begins, grows
and ends before the next one begins. `timings` and `colibri` stand beside Anthropic's fields, as in the other routes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.api.chat_shape import ChatShape
from appliance.api.generation import Generation
from appliance.api.shapes import Answer
from appliance.api.spoken import Call, ChatAnswer
from appliance.request import Done, Piece, Prefill

CUT = "a call of a tool was cut by the limit and is left out"


@dataclass(kw_only=True)
class MessageShape(ChatShape):
    """/v1/messages. `stops` are the client's own stop texts."""

    generation: Generation
    stops: Sequence[str] = ()
    _open: str = ""
    _n_blocks: int = field(default=0)

    # Plain

    def plain(self, answers: Mapping[int, Answer]) -> dict[str, Any]:
        answer = answers[0]
        assert isinstance(answer, ChatAnswer) and answer.done is not None
        content: list[dict[str, Any]] = []
        if answer.thoughts:
            content.append({"type": "thinking", "thinking": answer.thoughts, "signature": ""})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        calls = [(call, _object(call.arguments)) for call in answer.calls]
        content += [_use(call, given) for call, given in calls if given is not None]
        if any(given is None for _, given in calls):
            self.notes = (*self.notes, CUT)
        reason, text = self._stop(answer)
        usage = self._usage(answer.done.n_prompt, answer.done.n_cached, answer.done.n_generated)
        return {**self._message(content, reason, text, usage), **self._tail(answer.done)}

    # Events

    def opening(self, index: int) -> dict[str, Any] | None:
        n_prompt, n_cached = self._prompt()
        return {"type": "message_start", "message": self._message([], None, None, self._usage(n_prompt, n_cached, 0))}

    def pieces(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        answer = self._answers.get(index) or self.new_answer(index)
        answer.add(piece)
        return [event for delta in answer.take_deltas() for event in self._events(delta)]

    def progress(self, index: int, prefill: Prefill) -> dict[str, Any]:
        return {"type": "ping"}

    def closing(self, index: int, done: Done) -> list[dict[str, Any]]:
        answer = self._answers.get(index) or self.new_answer(index)
        answer.end(done)
        events = [event for delta in answer.take_deltas() for event in self._events(delta)]
        reason, text = self._stop(answer)
        usage = self._usage(done.n_prompt, done.n_cached, done.n_generated)
        delta = {"stop_reason": reason, "stop_sequence": text}
        end = {"type": "message_delta", "delta": delta, "usage": usage, **self._tail(done)}
        return [*events, *self._close(), end, {"type": "message_stop"}]

    def _events(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of one delta of a chat."""
        if "content" in delta:
            new = {"type": "text", "text": ""}
            return [*self._begin("text", new), self._grow({"type": "text_delta", "text": delta["content"]})]
        if "reasoning_content" in delta:
            new = {"type": "thinking", "thinking": "", "signature": ""}
            grown = {"type": "thinking_delta", "thinking": delta["reasoning_content"]}
            return [*self._begin("thinking", new), self._grow(grown)]
        events: list[dict[str, Any]] = []
        for piece in delta["tool_calls"]:
            function = piece["function"]
            if "id" in piece:
                events += self._begin(piece["id"], _use(Call(piece["id"], function["name"]), {}))
            if function["arguments"]:
                events.append(self._grow({"type": "input_json_delta", "partial_json": function["arguments"]}))
        return events

    def _begin(self, kind: str, block: dict[str, Any]) -> list[dict[str, Any]]:
        """Nothing while a block of this kind is open."""
        if self._open == kind:
            return []
        events = self._close()
        self._open, self._n_blocks = kind, self._n_blocks + 1
        return [*events, {"type": "content_block_start", "index": self._n_blocks - 1, "content_block": block}]

    def _grow(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._n_blocks - 1, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if not self._open:
            return []
        self._open = ""
        return [{"type": "content_block_stop", "index": self._n_blocks - 1}]

    # What both share

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self.answer.name.rpartition('-')[2]}", "type": "message", "role": "assistant",
            "model": self.answer.model, "content": content, "stop_reason": reason, "stop_sequence": stop,
            "usage": usage,
        }  # fmt: skip

    def _stop(self, answer: ChatAnswer) -> tuple[str, str | None]:
        done = answer.done
        assert done is not None
        if done.stop_string in self.stops:
            return "stop_sequence", done.stop_string
        return {"length": "max_tokens", "tool_calls": "tool_use"}.get(answer.finish_reason or "", "end_turn"), None

    def _usage(self, n_prompt: int, n_cached: int, n_generated: int) -> dict[str, int]:
        """Anthropic counts what was cached apart."""
        return {
            "input_tokens": n_prompt - n_cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": n_cached,
            "output_tokens": n_generated,
        }  # fmt: skip

    def _prompt(self) -> tuple[int, int]:
        """Tokens of the prompt and those that were not computed, as far as it is known when the answer begins."""
        for _, event in self.generation.events:
            if isinstance(event, Prefill):
                return event.total, event.cached
        return 0, 0


def _use(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _object(arguments: str) -> dict[str, Any] | None:
    """A call's arguments; None for those that a limit has cut."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
