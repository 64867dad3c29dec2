"""The request bodies, one pydantic model each; `/openapi.json` is made of them. Not here: what is done with them.

Types are strict (no number in quotes, no 1 for true), null means "not given" everywhere, and a field that no model
names is refused by `fields.py` with the nearest name. Messages keep only the fields that templates know: clients send
back what they were sent, with more beside it.
"""

import re
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from appliance.api.structured import Constrained
from appliance.api.tools import NamedTool, Tools
from appliance.strict_json import json_name

MAX_CHOICES = 8
"""Answers of one request, computed one after the other."""
MAX_STOPS = 16
MAX_LOGPROBS = 20


def one_of(**names: str) -> Discriminator:
    """Choose a union's member by JSON type, so that a fault is told once and not for each member.

    `names` maps JSON types to tags; tags stand in angle brackets, which keeps them out of the names of fields.
    """
    words = " or ".join(names)
    return Discriminator(
        lambda value: names.get(json_name(value)),
        custom_error_type="wrong_kind",
        custom_error_message=f"{words} expected",
    )


def _stops(value: Any) -> Any:
    if value == "" or (isinstance(value, list) and "" in value):
        raise PydanticCustomError("empty_stop", "an empty stop string would end every answer at once; leave it out")
    return value


def _prompt_tag(value: Any) -> str | None:
    if isinstance(value, list):
        kinds = {json_name(item) for item in value}
        tags = {"string": "<texts>", "number": "<ids>", "array": "<lists of ids>"}
        return tags.get(kinds.pop()) if len(kinds) == 1 else None
    return "<text>" if isinstance(value, str) else None


# Arrays end at their first fault: each further one would cost a kilobyte and be told to nobody.
Ids = Annotated[list[int], Field(min_length=1, fail_fast=True)]
Stop = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[str], Field(fail_fast=True), Tag("<array>")],
    one_of(string="<string>", array="<array>"),
    BeforeValidator(_stops),
]
Prompt = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[list[str], Field(fail_fast=True), Tag("<texts>")]
    | Annotated[Ids, Tag("<ids>")]
    | Annotated[list[Ids], Field(fail_fast=True), Tag("<lists of ids>")],
    Discriminator(
        _prompt_tag,
        custom_error_type="wrong_kind",
        custom_error_message="text, token ids, or an array of texts or of arrays of ids expected",
    ),
]


def _wrong_bias(value: Any) -> Any:
    """Leave only the first wrong entry, if there is one: an object's faults are all collected, arrays' are not."""
    if isinstance(value, dict):
        for key, bias in value.items():
            if not TOKEN_ID.fullmatch(key) or type(bias) not in (int, float) or not -100 <= bias <= 100:
                return {key: bias}
    return value


TOKEN_ID = re.compile(r"[0-9]{1,9}")
TokenIds = Annotated[
    dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]],
    BeforeValidator(_wrong_bias),
]


def _not_zero(value: int) -> int:
    if value == 0:
        raise PydanticCustomError("zero", "at least 1 expected, or -1 for no limit")
    return value


def _few_pairs(value: Any) -> Any:
    """No more pairs than it takes to see that there are too many."""
    return dict(islice(value.items(), MAX_PAIRS + 1)) if isinstance(value, dict) else value


MAX_PAIRS = 16
MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MAX_PAIRS), BeforeValidator(_few_pairs)]
Limit = Annotated[int, Field(ge=-1), AfterValidator(_not_zero)]


class Body(BaseModel):
    """Strict and closed; see the module."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


class TextPart(BaseModel):
    """`{"type": "text", "text": …}`; `refusal` parts of a sent back answer count as text."""

    model_config = ConfigDict(strict=True, extra="ignore")
    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def has_text(self) -> Self:
        if self.text is None and self.refusal is None:
            raise PydanticCustomError("no_text", "a text part needs its text")
        return self


Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[TextPart], Field(fail_fast=True), Tag("<array>")],
    one_of(string="<string>", array="<array>"),
]


class CalledFunction(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    name: str
    arguments: str


class ToolCall(BaseModel):
    """A call in an earlier assistant turn."""

    model_config = ConfigDict(strict=True, extra="ignore")
    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(BaseModel):
    """One turn. `developer` is `system`; content null or missing is empty, and only the assistant may leave it so."""

    model_config = ConfigDict(strict=True, extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @model_validator(mode="after")
    def is_whole(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("no_content", "a message of role {role} needs content", {"role": self.role})
        if self.role == "tool" and self.tool_call_id is None:
            raise PydanticCustomError("no_tool_call_id", "a message of role tool needs tool_call_id")
        return self

    def plain(self) -> dict[str, Any]:
        """What a template gets: content is always one string."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text if part.text is not None else part.refusal or "" for part in content)
        fields = self.model_dump(exclude_none=True, include={"name", "tool_calls", "tool_call_id", "reasoning_content"})
        if not self.tool_calls:  # some templates look only whether there is a list
            fields.pop("tool_calls", None)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": content, **fields}


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(None, description="accepted; nothing is obfuscated")


class Sampled(Body, Constrained):
    """What both completion routes share."""

    model: str | None = Field(None, description="an id of /v1/models; the only model when left out")
    max_tokens: Limit | None = Field(None, description="most tokens of the answer; -1 or none: what the context holds")
    max_completion_tokens: Limit | None = Field(None, description="like max_tokens; the smaller of both counts")
    stop: Stop | None = Field(None, description=f"up to {MAX_STOPS} texts that end the answer and are not sent")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES, description="answers, computed one after the other")
    seed: int | None = Field(None, ge=-1, lt=1 << 64, description="-1 or none: drawn anew")
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=1 << 31, description="0 or -1: off")
    min_p: float | None = Field(None, ge=0, le=1)
    typical_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, ge=0.01, le=100)
    repeat_last_n: int | None = Field(None, ge=-1, lt=1 << 31, description="-1: the whole context")
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: TokenIds | None = Field(None, description="token id to -100 … 100; -100 bans")
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    return_progress: bool | None = Field(None, description="streams: chunks that tell how much of the prompt is read")
    t_max_predict_ms: int | None = Field(None, ge=-1, description="time for the answer after its first token")
    cache_prompt: bool | None = Field(None, description="accepted; it never changes an answer")
    id_slot: int | None = Field(None, ge=-1, le=0, description="there is one slot, 0")
    user: str | None = None
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def few_stops(self) -> Self:
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            raise PydanticCustomError("stops", "stop: more than {most} texts", {"most": MAX_STOPS})
        return self

    def stops(self) -> tuple[str, ...]:
        """The stop texts, each once."""
        return tuple(dict.fromkeys([self.stop] if isinstance(self.stop, str) else self.stop or ()))


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<string>")] | Annotated[NamedTool, Tag("<object>")],
    one_of(string="<string>", object="<object>"),
]


class ChatRequest(Sampled):
    """POST /v1/chat/completions."""

    messages: Messages
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    n_probs: int | None = Field(None, ge=0, le=MAX_LOGPROBS, description="llama-server's word for top_logprobs")
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call in an answer")
    service_tier: str | None = None
    reasoning_effort: str | None = Field(None, description="for the chat template; none: enable_thinking false too")
    reasoning_format: Literal["none", "auto", "deepseek"] | None = Field(
        None, description="none leaves reasoning in content; else it is reasoning_content"
    )
    store: bool | None = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None

    @model_validator(mode="after")
    def asks_for_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise PydanticCustomError("top_logprobs", "top_logprobs needs logprobs: true")
        return self

    def variables(self) -> dict[str, Any]:
        """What the template gets beside messages and tools; chat_template_kwargs has the last word."""
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        if self.reasoning_effort == "none":
            effort["enable_thinking"] = False  # type: ignore[assignment]
        return {**effort, **(self.chat_template_kwargs or {})}


def _several(given: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """What was given once or as a list, as a list of texts or of ids."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        return [[token for token in given if isinstance(token, int)]]
    return [item for item in given if not isinstance(item, int)]


class CompletionRequest(Sampled):
    """POST /v1/completions. `echo` puts the prompt before the answer."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    best_of: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def can_be_done(self) -> Self:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise PydanticCustomError("best_of", "best_of: no more answers than n are computed; leave it out")
        if self.echo and self.logprobs is not None:
            raise PydanticCustomError("echo", "echo: the prompt's own logprobs are not computed; ask for one of both")
        return self

    def prompts(self) -> list[str | list[int]]:
        """Each prompt of the request as text or ids."""
        return _several(self.prompt)


class EmbeddingsRequest(Body):
    """POST /v1/embeddings."""

    input: Prompt
    model: str | None = Field(None, description="an id of /v1/models; the only model when left out")
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, le=1 << 20, description="keep so many of each vector's first values")
    user: str | None = None

    def inputs(self) -> list[str | list[int]]:
        """Each text, or its ids."""
        return _several(self.input)


class TokenizeRequest(Body):
    """POST /tokenize."""

    content: str
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(Body):
    """POST /detokenize."""

    tokens: Annotated[list[int], Field(fail_fast=True)]


class ApplyTemplateRequest(Body):
    """POST /apply-template."""

    messages: Messages
    model: str | None = None
    tools: Tools | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


ProfileName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Note = Annotated[str, StringConstraints(max_length=200)]
Rev = Annotated[int, Field(ge=0, lt=1 << 31)]


class SaveProfileRequest(Body):
    """PUT /admin/profiles/{name}. A draft is kept beside the profile and may have faults."""

    text: str = Field(description="the YAML, at most 64 KiB")
    note: Note | None = Field(None, description="why, for the history")
    draft: bool | None = None


class ValidateProfileRequest(Body):
    """POST /admin/profiles/validate."""

    name: ProfileName
    text: str


class PlanRequest(Body):
    """POST /admin/plan: a profile as it is saved, or as `text` would make it."""

    name: ProfileName
    text: str | None = None


class SwapRequest(Body):
    """POST /admin/swap."""

    to: ProfileName
    rev: Rev | None = Field(None, description="an earlier revision; the newest when left out")
    note: Note | None = Field(None, description="why, for the log")


class ActiveProfileRequest(Body):
    """PUT /api/profiles/active, in llama-swap's shape: `name` or `profile`."""

    name: ProfileName | None = None
    profile: ProfileName | None = None
    rev: Rev | None = None
    note: Note | None = None

    @model_validator(mode="after")
    def names_one(self) -> Self:
        if (self.name is None) == (self.profile is None):
            raise PydanticCustomError("one_name", "name: the profile's name expected, under name or profile, once")
        return self
