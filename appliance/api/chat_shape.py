"""/v1/chat/completions' answer objects, plain and in chunks. Not here: what they share with other routes (shapes.py).

Reasoning stands beside the answer's text, as `reasoning_content`; calls of tools are OpenAI's, in chunks with the
index of their call, with id and name once.
"""

from dataclasses import dataclass, field
from typing import Any

from appliance.api.shapes import Answer, Shape, entry
from appliance.api.spoken import ChatAnswer
from appliance.request import Done, Piece, TokenLogprob


@dataclass(kw_only=True)
class ChatShape(Shape):
    """/v1/chat/completions."""

    _answers: dict[int, ChatAnswer] = field(default_factory=dict)

    plain_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def new_answer(self, index: int) -> ChatAnswer:
        answer = ChatAnswer(key=f"{self.answer.name}-{index}", speech=self.answer.speech(index))
        self._answers[index] = answer
        return answer

    def n_thought(self) -> int:
        return sum(answer.n_thought for answer in self._answers.values())

    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        assert isinstance(answer, ChatAnswer)
        return {
            "index": index,
            "message": answer.message(),
            "logprobs": self._logprobs(answer.logprobs),
            "finish_reason": answer.finish_reason,
        }

    def opening(self, index: int) -> dict[str, Any] | None:
        return self.chunk(self._choice(index, {"role": "assistant", "content": ""}, [], None))

    def delta(self, index: int, piece: Piece, finish: str | None) -> dict[str, Any]:
        delta = {"content": piece.text} if piece.text or piece.logprobs else {}
        return self._choice(index, delta, piece.logprobs, finish)

    def pieces(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        answer = self._answers.get(index) or self.new_answer(index)
        answer.add(piece)
        deltas = answer.take_deltas()
        if piece.logprobs and not deltas:
            deltas = [{"content": ""}]  # they are of tokens whose text is held back
        last = len(deltas) - 1
        choices = [self._choice(index, d, piece.logprobs if i == last else [], None) for i, d in enumerate(deltas)]
        return [self.chunk(choice) for choice in choices]

    def closing(self, index: int, done: Done) -> list[dict[str, Any]]:
        answer = self._answers.get(index) or self.new_answer(index)
        answer.end(done)
        rest = [self.chunk(self._choice(index, delta, [], None)) for delta in answer.take_deltas()]
        return [
            *rest,
            {**self.chunk(self._choice(index, {}, [], answer.finish_reason)), **self._tail(done, of=(index, done))},
        ]

    def _choice(
        self, index: int, delta: dict[str, Any], logprobs: list[TokenLogprob], finish: str | None
    ) -> dict[str, Any]:
        found = self._logprobs(logprobs) if logprobs else None
        return {"index": index, "delta": delta, "logprobs": found, "finish_reason": finish}

    def _logprobs(self, tokens: list[TokenLogprob]) -> dict[str, Any] | None:
        if self.n_top is None:
            return None
        top = [[entry(rival) for rival in token.top[: self.n_top]] for token in tokens]
        content = [{**entry(token), "top_logprobs": rivals} for token, rivals in zip(tokens, top, strict=True)]
        return {"content": content, "refusal": None}
