"""POST /v1/score and closed schemas at a real server, against the engine's own logits of each option alone."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.budget import Machine
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.score import ln_p
from engine.text import Text, open_text
from tests.appliance.api.test_serve import Server, serving
from tests.tiny import CHATML, tiny_llama

MESSAGES = [{"role": "user", "content": "What is it?"}]
LABELS = ["bird", "flower", "tree", "birds"]
SCHEMA = {
    "type": "object", "properties": {"tag": {"enum": ["bird", "flower"]}, "sure": {"type": "boolean"}},
    "required": ["tag", "sure"], "additionalProperties": False,
}  # fmt: skip
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("m") / "tiny.gguf", **{"tokenizer.chat_template": CHATML})


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(model.parent, model, "--alias", "tiny", "-np", "2", "-c", "256") as running:
        yield running


@pytest.fixture(scope="module")
def alone(model: Path) -> Iterator[tuple[Engine, Text]]:
    engine = load_engine(model, EngineOptions(256, 1, 1, spec_type="none"), Machine(1 << 34, None, 2, (0, 1), None))
    yield engine, open_text(read_gguf(model))
    engine.shutdown()


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    head = {"Authorization": f"Bearer {server.keys['user']}"}
    return httpx.post(f"{server.base}{path}", json=body, headers=head, timeout=60)


def forced(alone: tuple[Engine, Text], prompt: str, option: str, with_end: bool) -> float:
    engine, text = alone
    ids, tail = text.encode(prompt, True, True), text.encode(option, False, False)
    rows = list(engine.logit_rows([*ids, *tail]))[len(ids) - 1 :]
    parts = [ln_p(row, (token,)) for row, token in zip(rows, tail, strict=False)]
    return math.fsum([*parts, ln_p(rows[-1], text.vocab.eog_ids)] if with_end else parts)


@pytest.mark.parametrize("with_end", [False, True])
def test_options_behind_a_text_have_the_engine_s_own_probabilities(
    server: Server, alone: tuple[Engine, Text], with_end: bool
) -> None:
    found = post(server, "/v1/score", context="It was a", options=LABELS, with_end=with_end)
    assert found.status_code == 200, found.text
    body = found.json()
    want = [forced(alone, "It was a", label, with_end) for label in LABELS]
    assert [row["logprob"] for row in body["results"]] == want
    whole = math.fsum(map(math.exp, want))
    for row, score, label in zip(body["results"], want, LABELS, strict=True):
        assert row["option"] == label and row["probability"] == pytest.approx(math.exp(score) / whole)
    assert body["best"] == LABELS[want.index(max(want))]
    shares = sorted((math.exp(score) / whole for score in want), reverse=True)
    assert body["margin"] == pytest.approx(shares[0] - shares[1])
    assert body["entropy"] == pytest.approx(-math.fsum(p * math.log(p) for p in shares))
    assert body["usage"]["completion_tokens"] == 0


def test_a_conversation_s_options_are_whole_turns(server: Server, alone: tuple[Engine, Text]) -> None:
    prompt = post(server, "/apply-template", messages=MESSAGES).json()["prompt"]
    body = post(server, "/v1/score", messages=MESSAGES, options=LABELS).json()
    assert [row["logprob"] for row in body["results"]] == [forced(alone, prompt, label, True) for label in LABELS]


def test_a_closed_schema_is_answered_without_a_generated_token(server: Server, alone: tuple[Engine, Text]) -> None:
    client = server.client()
    given: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "response_format": NAMED}
    answer = client.chat.completions.create(**given)
    assert answer.usage.completion_tokens == 0 and answer.choices[0].finish_reason == "stop"
    prompt = post(server, "/apply-template", messages=MESSAGES).json()["prompt"]
    texts = [f'{{"tag":"{tag}","sure":{sure}}}' for tag in ("bird", "flower") for sure in ("true", "false")]
    scores = [forced(alone, prompt, text, False) for text in texts]
    assert answer.choices[0].message.content == texts[scores.index(max(scores))]
    shares = [math.exp(score - max(scores)) for score in scores]
    birds = sum(shares[:2]) / sum(shares)
    told = answer.colibri["confidence"]
    assert told["tag"]["probability"] == pytest.approx(max(birds, 1 - birds), abs=1e-6)
    streamed = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**given, stream=True))
    assert streamed == answer.choices[0].message.content


def test_what_is_drawn_or_shown_token_by_token_is_generated(server: Server) -> None:
    given: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "response_format": NAMED, "max_tokens": 60}
    for more in ({"temperature": 0.7}, {"logprobs": True}, {"n": 2}):
        answer = server.client().chat.completions.create(**given, **more)
        assert answer.usage.completion_tokens > 0 and "confidence" not in answer.colibri
        json.loads(answer.choices[0].message.content)


def test_a_choice_is_weighed_too(server: Server) -> None:
    given = {"structured_outputs": {"choice": ["yes", "no"]}}
    answer = server.client().chat.completions.create(model="tiny", messages=MESSAGES, extra_body=given)
    assert answer.choices[0].message.content in ("yes", "no") and answer.colibri["confidence"]["choice"]["margin"] >= 0


@pytest.mark.parametrize(("body", "said"), [
    ({"options": ["a", "b"]}, "one of context"), ({"context": "x", "options": ["a"]}, "options"),
    ({"context": "x", "options": ["a", "a"]}, "twice"), ({"context": "x", "options": ["a", ""]}, "empty"),
    ({"context": "x", "options": [str(i) for i in range(65)]}, "options"),
    ({"context": "x", "options": "ab"}, "options"),
    ({"context": "x", "messages": MESSAGES, "options": ["a", "b"]}, "one of context"),
    ({"context": "x" * 4000, "options": ["a", "b"]}, "context"),
])  # fmt: skip
def test_what_cannot_be_weighed_is_a_400_with_a_sentence(server: Server, body: dict[str, Any], said: str) -> None:
    found = post(server, "/v1/score", **body)
    assert found.status_code == 400 and said in found.json()["error"]["message"], found.text
