"""Answers that must fit, asked for with the real client at a real server; and requests that cannot be kept to."""

import enum
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pydantic
import pytest

from tests.appliance.api.test_serve import Server, serving
from tests.tiny import CHATML, tiny_llama

SCHEMA = {
    "type": "object", "properties": {"tag": {"enum": ["bird", "flower"]}, "n": {"type": "integer", "minimum": 0,
    "maximum": 99}, "who": {"type": "string", "maxLength": 5}}, "required": ["tag", "n", "who"],
    "additionalProperties": False,
}  # fmt: skip
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
THINKING = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")


class Kind(enum.Enum):
    bird = "bird"
    flower = "flower"


class Tagged(pydantic.BaseModel):
    kind: Kind
    sure: bool


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("s")
    model = tiny_llama(folder / "tiny.gguf", **{"tokenizer.chat_template": THINKING})
    with serving(folder, model, "--alias", "tiny") as running:
        yield running


def ask(server: Server, **more: Any) -> Any:
    given: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Which?"}], "max_tokens": 120}
    return server.client().chat.completions.create(**(given | more))


@pytest.mark.parametrize("temperature", [0, 1.3])
def test_a_schema_is_kept_to_plain_and_streamed(server: Server, temperature: float) -> None:
    whole = ask(server, response_format=NAMED, temperature=temperature, seed=3)
    found = whole.choices[0]
    assert found.finish_reason == "stop" and not getattr(found.message, "reasoning_content", None)
    jsonschema.validate(json.loads(found.message.content), SCHEMA)
    chunks = ask(server, response_format=NAMED, temperature=temperature, seed=3, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == found.message.content


def test_parse_gives_the_client_s_own_type(server: Server) -> None:
    made = server.client().chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": "Which?"}], response_format=Tagged, max_tokens=60
    )
    assert isinstance(made.choices[0].message.parsed, Tagged)


@pytest.mark.parametrize(
    ("wish", "pattern"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"structured_outputs": {"regex": "[ab]{3}-[0-9]"}}, "[ab]{3}-[0-9]"),
        ({"guided_regex": "x{2,4}"}, "x{2,4}"),
        ({"structured_outputs": {"grammar": 'start: ("ab" | "c") "!"'}}, "(ab|c)!"),
        ({"structured_outputs": {"json": {"type": "integer", "minimum": 5, "maximum": 9}}}, "[5-9]"),
        ({"json_schema": {"type": "boolean"}}, "true|false"),
    ],
)
def test_every_other_name_of_it(server: Server, wish: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, ask(server, extra_body=wish, temperature=1).choices[0].message.content)
    plain = server.client().completions.create(model="tiny", prompt="the", max_tokens=40, extra_body=wish)
    assert re.fullmatch(pattern, plain.choices[0].text) and plain.choices[0].finish_reason == "stop"


def test_json_object_and_several_answers(server: Server) -> None:
    wish = {"structured_outputs": {"choice": ["the", "bird", "river"]}, "min_p": 0}
    several = ask(server, n=8, temperature=9, top_p=1, seed=1, extra_body=wish)
    found = {choice.message.content for choice in several.choices}
    assert found <= {"the", "bird", "river"} and len(found) > 1
    cut = ask(server, response_format={"type": "json_object"}, max_tokens=2).choices[0]
    assert cut.finish_reason in ("stop", "length") and cut.message.content.startswith("{")


@pytest.mark.parametrize(
    ("wish", "param", "code", "words"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format", "invalid_json_schema", "without a schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
                "type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}}},
            "response_format.json_schema.schema.properties.a", "invalid_json_schema", "uniqueItems",
        ),
        ({"json_schema": {"type": "objekt"}}, "json_schema", "invalid_json_schema", "objekt"),
        ({"guided_regex": "(a"}, "guided_regex", "unsupported_value", "unclosed"),
        ({"guided_grammar": "start: nobody"}, "guided_grammar", "unsupported_value", "nobody"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", None, "at least 1"),
        ({"structured_outputs": {"chioce": ["a"]}}, "structured_outputs.chioce", None, "chioce"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "unsupported_value", "both bind"),
        (
            {"guided_regex": "a", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools",
            "unsupported_value", "cannot call tools",
        ),
        ({"grammar": "root ::= x"}, "grammar", "unsupported_parameter", "Lark"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_to_is_refused_before_it_waits(
    server: Server, wish: dict[str, Any], param: str, code: str | None, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=re.escape(words)) as caught:
        ask(server, extra_body=wish)
    assert caught.value.param == param and (code is None or caught.value.code == code)
