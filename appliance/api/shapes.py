"""OpenAI's answer objects, plain and in chunks: what both routes share, and /v1/completions. Not here: chats, HTTP.

Whatever is ours stands beside OpenAI's fields: `timings` (llama-server's names) and `colibri` (seed, notes).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from appliance.closed import ClosedSet
from appliance.handoffs import handoff_id
from appliance.request import Done, Piece, Prefill, TokenLogprob
from appliance.speech.speech import Speech


@dataclass(slots=True)
class Answer:
    """One choice as it grows."""

    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    done: Done | None = None

    def add(self, piece: Piece) -> None:
        """Take a piece."""
        self.text += piece.text
        self.logprobs += piece.logprobs

    def end(self, done: Done) -> None:
        """Take the end."""
        self.done = done


class Signed(Protocol):
    """Whose answer it is; `model` and `fingerprint` are settled when the engine has taken it, not before."""

    name: str
    created: int
    model: str
    fingerprint: str

    def speech(self, index: int) -> Speech: ...
    def hints(self, index: int, done: Done) -> list[str]: ...


@dataclass(kw_only=True)
class Shape(ABC):
    """What all objects of one answer share. `n_top` None: no logprobs were asked for; `n` answers per prompt."""

    answer: Signed
    n: int = 1
    n_top: int | None = None
    with_usage: bool = False
    notes: tuple[str, ...] = ()
    service_tier: str | None = None
    closed: ClosedSet | None = None

    plain_object = ""
    chunk_object = ""

    # What the two kinds of completion differ in

    @abstractmethod
    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        """A whole choice."""

    @abstractmethod
    def opening(self, index: int) -> dict[str, Any] | None:
        """The first chunk of a choice, if there is one before its text."""

    @abstractmethod
    def delta(self, index: int, piece: Piece, finish: str | None) -> dict[str, Any]:
        """A chunk's choice for a piece as it is."""

    def new_answer(self, index: int) -> Answer:
        """Where a choice is collected."""
        return Answer()

    def n_thought(self) -> int:
        """Tokens that went into reasoning, of all answers."""
        return 0

    # What they share

    def plain(self, answers: Mapping[int, Answer]) -> dict[str, Any]:
        """The whole answer."""
        dones = {i: a.done for i, a in sorted(answers.items()) if a.done is not None}
        choices = [self.choice(i, a) for i, a in sorted(answers.items())]
        body = {**self._head(self.plain_object), "choices": choices, "usage": self.usage(dones)}
        first = next((i for i, done in dones.items() if done.loop is not None), 0)
        return {**body, **self._tail(dones[0], of=(first, dones[first]))}

    def chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        """A chunk with one choice; `usage` is null in all but the last when it was asked for."""
        body = {**self._head(self.chunk_object), "choices": [choice]}
        return {**body, "usage": None} if self.with_usage else body

    def pieces(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """The chunks that a piece settles."""
        return [self.chunk(self.delta(index, piece, None))]

    def closing(self, index: int, done: Done) -> list[dict[str, Any]]:
        """The last chunks: what was held back, then the finish reason with the timings of its answer."""
        return [
            {**self.chunk(self.delta(index, Piece("", []), done.finish_reason)), **self._tail(done, of=(index, done))}
        ]

    def progress(self, index: int, prefill: Prefill) -> dict[str, Any]:
        """How much of the prompt is read; for clients that asked with return_progress."""
        facts = {
            "total": prefill.total, "cache": prefill.cached, "processed": prefill.done, "time_ms": round(prefill.ms, 1)
        }  # fmt: skip
        return {**self.chunk(self.delta(index, Piece("", []), None)), "prompt_progress": facts}

    def usage_chunk(self, dones: Mapping[int, Done]) -> dict[str, Any]:
        return {**self._head(self.chunk_object), "choices": [], "usage": self.usage(dones)}

    def usage(self, dones: Mapping[int, Done]) -> dict[str, Any]:
        """Token counts: each prompt once, all answers."""
        prompts = [done for i, done in dones.items() if i % self.n == 0]
        n_prompt = sum(done.n_prompt for done in prompts)
        n_generated = sum(done.n_generated for done in dones.values())
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_generated,
            "total_tokens": n_prompt + n_generated,
            "prompt_tokens_details": {"cached_tokens": sum(done.n_cached for done in prompts)},
            "completion_tokens_details": {"reasoning_tokens": self.n_thought()},
        }

    def _head(self, kind: str) -> dict[str, Any]:
        who = self.answer
        head: dict[str, Any] = {"id": who.name, "object": kind, "created": who.created, "model": who.model}
        if self.service_tier is not None:
            head["service_tier"] = "default"
        return {**head, "system_fingerprint": who.fingerprint}

    def _tail(self, done: Done, *, of: tuple[int, Done] | None = None) -> dict[str, Any]:
        """Timings of `done`; what went wrong with it, or with the answer `of` this number."""
        ours: dict[str, Any] = {"seed": done.seed}
        if done.handoff is not None:
            ours["handoff"] = {"id": handoff_id(self.answer.name), "reason": done.handoff}
        index, ended = of or (0, done)
        if ended.loop is not None:
            ours["loop"] = dict(ended.loop)
        if self.closed is not None and ended.scores is not None:
            ours["confidence"] = self.closed.confidence(ended.scores)
        if found := self.answer.hints(index, ended):
            ours["hints"] = found
        if self.notes:
            ours["notes"] = list(self.notes)
        timings = {name: round(value, 3) for name, value in done.timings.items()}
        return {**({"timings": timings} if timings else {}), "colibri": ours}


@dataclass(kw_only=True)
class CompletionShape(Shape):
    """/v1/completions. `echoes` holds the text before each choice, by prompt; empty without echo."""

    echoes: tuple[str, ...] = ()
    _offset: dict[int, int] = field(default_factory=dict)

    plain_object = "text_completion"
    chunk_object = "text_completion"

    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        finish = answer.done.finish_reason if answer.done else None
        return self._choice(index, self._echo(index) + answer.text, answer.logprobs, finish)

    def opening(self, index: int) -> dict[str, Any] | None:
        echo = self._echo(index)
        return self.chunk(self._choice(index, echo, [], None)) if echo else None

    def delta(self, index: int, piece: Piece, finish: str | None) -> dict[str, Any]:
        return self._choice(index, piece.text, piece.logprobs, finish)

    def _echo(self, index: int) -> str:
        return self.echoes[index // self.n] if self.echoes else ""

    def _choice(self, index: int, text: str, tokens: list[TokenLogprob], finish: str | None) -> dict[str, Any]:
        logprobs = self._logprobs(index, tokens) if self.n_top is not None and (tokens or finish is None) else None
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, index: int, tokens: list[TokenLogprob]) -> dict[str, Any]:
        words = [entry(token)["token"] for token in tokens]
        offsets = []
        for word in words:
            offsets.append(self._offset.setdefault(index, 0))
            self._offset[index] += len(word)
        top = [{entry(rival)["token"]: rival.logprob for rival in token.top[: self.n_top]} for token in tokens]
        return {
            "tokens": words,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": top if self.n_top else None,
            "text_offset": offsets,
        }


def entry(token: TokenLogprob) -> dict[str, Any]:
    """A token with its logprob and bytes."""
    return {"token": token.text.decode("utf-8", "replace"), "logprob": token.logprob, "bytes": list(token.text)}
