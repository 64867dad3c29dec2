"""Answers that must fit something: response_format, structured_outputs and their other names. Not here: keeping to it.

    response_format      {"type": "text" | "json_object"} or {"type": "json_schema", "json_schema": {"schema": {...}}}
    json_schema          llama-server's short form: the schema itself
    structured_outputs   one of json (a schema), regex, choice (texts), grammar (llguidance's Lark)
    guided_json, …       older names of the four

What cannot be kept to is a 400 before anything is queued, with the path of the part that is to blame.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from appliance.closed import ClosedSet
from engine import constrain
from engine.errors import InvalidParameter, RequestError

MOST_CHOICES = 10_000
REMARKS = ("title", "description", "examples", "default", "$comment")
Schema = dict[str, Any] | bool


class InvalidSchema(RequestError):
    code = "invalid_json_schema"


class NamedSchema(BaseModel):
    """OpenAI's wrapper; every schema is kept to strictly, whatever `strict` says."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    schema_: Schema = Field(alias="schema")


class ResponseFormat(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    json_: Schema | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES, fail_fast=True)] | None = None
    grammar: str | None = Field(None, description="llguidance's form of Lark")


class Constrained(BaseModel):
    """The fields of a request that bind its answer."""

    response_format: ResponseFormat | None = None
    json_schema: Schema | None = Field(None, description="llama-server's word: the schema itself")
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = Field(None, description="an older name of structured_outputs.json")
    guided_regex: str | None = Field(None, description="an older name of structured_outputs.regex")
    guided_choice: Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES, fail_fast=True)] | None = None
    guided_grammar: str | None = Field(None, description="an older name of structured_outputs.grammar")


def grammar_of(ask: Constrained) -> str:
    """What the answer must fit (engine/constrain.py), "" when anything will do. Takes milliseconds, for a hostile
    schema seconds: not on the event loop. InvalidSchema, InvalidParameter name the field."""
    wanted = _wanted(ask)
    if len(wanted) > 1:
        raise InvalidParameter(f"{wanted[0][0]} and {wanted[1][0]} both bind the answer; use one", param=wanted[1][0])
    if not wanted:
        return ""
    field, kind, value = wanted[0]
    if kind == "schema":
        wrong, path = constrain.check_schema(value)
        if wrong:
            where = f"{field}.{path}" if path else field
            raise InvalidSchema(f"the schema cannot be kept to: {wrong} (at {where})", param=where)
        return constrain.json_schema(value)
    try:
        made = {"regex": constrain.regex, "grammar": constrain.lark, "choice": constrain.choice}[kind](value)
        wrong = constrain.check(made)
    except UnicodeEncodeError:
        made, wrong = "", "it holds half of a surrogate pair, which is no character"
    if wrong:
        raise InvalidParameter(f"{field} cannot be kept to: {wrong}", param=field)
    return made


def letters_of(ask: Constrained) -> set[str]:
    """What an answer may have to hold beyond ASCII, a letter each: of names, values and expressions, not of remarks."""
    return {letter for _, _, value in _wanted(ask) for text in _texts(value) for letter in text if letter > "\x7f"}


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, str):
            yield here
        elif isinstance(here, list):
            todo += here
        elif isinstance(here, dict):
            yield from here
            todo += [part for name, part in here.items() if name not in REMARKS]


def closed_set(ask: Constrained) -> ClosedSet | None:
    """The few answers that fit, where grammar_of() has found no fault and there are only so many."""
    _, kind, value = _wanted(ask)[0]
    if kind == "schema":
        return ClosedSet.of(value)
    return ClosedSet.choice(value) if kind == "choice" else None


def _wanted(ask: Constrained) -> list[tuple[str, str, Any]]:
    """(field, kind, value) of everything that binds the answer."""
    form, others = ask.response_format, ask.structured_outputs or StructuredOutputs.model_validate({})
    found: list[tuple[str, str, Any]] = []
    if form is not None and form.type == "json_object":
        found.append(("response_format", "schema", {"type": "object"}))
    if form is not None and form.type == "json_schema":
        if form.json_schema is None:
            raise InvalidSchema("response_format json_schema comes without a schema", param="response_format")
        found.append(("response_format.json_schema.schema", "schema", form.json_schema.schema_))
    found += [
        ("json_schema", "schema", ask.json_schema), ("structured_outputs.json", "schema", others.json_),
        ("structured_outputs.regex", "regex", others.regex), ("structured_outputs.choice", "choice", others.choice),
        ("structured_outputs.grammar", "grammar", others.grammar), ("guided_json", "schema", ask.guided_json),
        ("guided_regex", "regex", ask.guided_regex), ("guided_choice", "choice", ask.guided_choice),
        ("guided_grammar", "grammar", ask.guided_grammar),
    ]  # fmt: skip
    return [each for each in found if each[2] is not None]
