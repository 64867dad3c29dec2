"""What POST /v1/messages and its count_tokens take: pydantic models of Anthropic's fields. Not here: HTTP, answering.

`as_chat()` gives the same request in the fields of /v1/chat/completions, so that both roads lead through one admission.
Blocks keep only the fields that a prompt can be made of; `cache_control` is among what is dropped, since prefixes are
shared without being asked.
"""

import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from appliance.api.schema import MAX_STOPS, Body, one_of
from appliance.api.tools import MAX_TOOLS, Choice, NamedTool

TOOL_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
NOT_READ = "images, documents and results of server tools are not read here"
OWN_TOOLS = (None, "custom")
HIGH = {"xhigh": "high", "max": "high"}
"""Degrees of effort that no template knows."""


class Block(BaseModel):
    """A block of a turn: text, a thought, a call of a tool or what came of one; anything else is refused."""

    model_config = ConfigDict(strict=True, extra="ignore")
    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "Blocks | None" = None
    is_error: bool | None = None

    @model_validator(mode="after")
    def is_whole(self) -> Self:
        needed = {
            "text": ("text",), "thinking": ("thinking",), "redacted_thinking": (), "tool_use": ("id", "name", "input"),
            "tool_result": ("tool_use_id",),
        }.get(self.type)  # fmt: skip
        if needed is None:
            text = f"blocks of type text, thinking, tool_use and tool_result expected; {NOT_READ}"
            raise PydanticCustomError("block_type", text)
        for name in needed:
            if getattr(self, name) is None:
                raise PydanticCustomError(
                    "block", "a block of type {type} needs {name}", {"type": self.type, "name": name}
                )
        return self


Blocks = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[Block], Field(fail_fast=True), Tag("<array>")],
    one_of(string="<string>", array="<array>"),
]
Block.model_rebuild()


def _text(blocks: str | list[Block] | None) -> str:
    """The text of blocks, one after the other."""
    if blocks is None or isinstance(blocks, str):
        return blocks or ""
    return "".join(block.text or "" for block in blocks if block.type == "text")


class Turn(BaseModel):
    """One turn; calls belong to the assistant's, results to the user's."""

    model_config = ConfigDict(strict=True, extra="ignore")
    role: Literal["user", "assistant", "system"]
    content: Blocks

    @model_validator(mode="after")
    def has_its_own_blocks(self) -> Self:
        kinds = {block.type for block in self.content} if isinstance(self.content, list) else set()
        for kind, role in (("tool_use", "assistant"), ("tool_result", "user"), ("thinking", "assistant")):
            if kind in kinds and self.role != role:
                text = "a block of type {kind} belongs to a turn of role {role}"
                raise PydanticCustomError("block_role", text, {"kind": kind, "role": role})
        return self

    def messages(self) -> list[dict[str, Any]]:
        """The same as messages of a chat: results of tools come first, each as a message of its own."""
        if isinstance(self.content, str):
            return [{"role": self.role, "content": self.content}]
        if self.role == "assistant":
            return [self._assistant(self.content)]
        results = [block for block in self.content if block.type == "tool_result"]
        made: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": block.tool_use_id, "content": _text(block.content)} for block in results
        ]
        text = _text(self.content)
        return [*made, {"role": self.role, "content": text}] if text or not made else made

    def _assistant(self, blocks: list[Block]) -> dict[str, Any]:
        calls = [
            {"id": block.id, "type": "function",
             "function": {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}}
            for block in blocks if block.type == "tool_use"
        ]  # fmt: skip
        thoughts = "".join(block.thinking or "" for block in blocks if block.type == "thinking")
        message: dict[str, Any] = {"role": "assistant", "content": _text(blocks)}
        if thoughts:
            message["reasoning_content"] = thoughts
        return {**message, "tool_calls": calls} if calls else message


class GivenTool(BaseModel):
    """A tool of the client's own; `input_schema` is a JSON schema."""

    model_config = ConfigDict(strict=True, extra="ignore")
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def is_the_clients(self) -> Self:
        if self.type not in OWN_TOOLS:
            raise PydanticCustomError(
                "server_tool", "no tool runs on this server; send tools of your own, of type custom"
            )
        if not TOOL_NAME.fullmatch(self.name):
            text = "name: 1 to 128 of the characters a-z, A-Z, 0-9 and _ . : - expected"
            raise PydanticCustomError("tool_name", text)
        if self.input_schema is None:
            raise PydanticCustomError("no_schema", "input_schema is missing: a tool needs the schema of its input")
        return self


def _once(tools: list[GivenTool]) -> list[GivenTool]:
    if len({tool.name for tool in tools}) != len(tools):
        raise PydanticCustomError("name_twice", "two tools have one name; a call could mean either")
    return tools


class ToolUse(BaseModel):
    """Whether tools may or must be called."""

    model_config = ConfigDict(strict=True, extra="ignore")
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def names_its_tool(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise PydanticCustomError("no_name", "tool_choice of type tool needs the tool's name")
        return self


class Thinking(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class OutputFormat(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    format: OutputFormat | None = None
    effort: str | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    user_id: str | None = None


class CountTokensRequest(Body):
    """POST /v1/messages/count_tokens."""

    model: str = Field(description="an id of /v1/models")
    messages: Annotated[list[Turn], Field(min_length=1, fail_fast=True)]
    system: Blocks | None = None
    tools: Annotated[list[GivenTool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_once)] | None = None
    tool_choice: ToolUse | None = None
    thinking: Thinking | None = Field(None, description="disabled or none: the template is told not to think")
    output_config: OutputConfig | None = None
    cache_control: dict[str, Any] | None = Field(None, description="accepted; prefixes are shared anyway")
    context_management: dict[str, Any] | None = Field(None, description="accepted; nothing is cut from the messages")

    @model_validator(mode="after")
    def ends_with_a_question(self) -> Self:
        if self.messages[-1].role == "assistant":
            raise PydanticCustomError(
                "prefill",
                "messages: the last turn is the assistant's, and answers are not continued here; end with a user's",
            )
        return self

    def openai_tools(self) -> list[dict[str, Any]] | None:
        """The tools as /v1/chat/completions takes them."""
        if not self.tools or (self.tool_choice is not None and self.tool_choice.type == "none"):
            return None
        return [
            {"type": "function",
             "function": {"name": t.name, "description": t.description, "parameters": t.input_schema}}
            for t in self.tools
        ]  # fmt: skip

    def choice(self) -> Choice | None:
        """The choice of tools in OpenAI's words."""
        if self.tool_choice is None or self.tool_choice.type in ("auto", "none"):
            return None
        if self.tool_choice.type == "any":
            return "required"
        return NamedTool.model_validate({"type": "function", "function": {"name": self.tool_choice.name}})

    def is_parallel(self) -> bool | None:
        return False if self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use else None

    def as_chat(self) -> dict[str, Any]:
        """The fields of a chat request that say what the prompt is and what binds the answer."""
        system = [{"role": "system", "content": _text(self.system)}] if self.system else []
        turns = [message for turn in self.messages for message in turn.messages()]
        thinks = self.thinking is not None and self.thinking.type != "disabled"
        made: dict[str, Any] = {
            "model": self.model, "messages": [*system, *turns], "chat_template_kwargs": {"enable_thinking": thinks},
        }  # fmt: skip
        if self.output_config is not None and self.output_config.effort is not None:
            made["reasoning_effort"] = HIGH.get(self.output_config.effort, self.output_config.effort)
        if self.output_config is not None and self.output_config.format is not None:
            made["json_schema"] = self.output_config.format.schema_
        return made


class MessagesRequest(CountTokensRequest):
    """POST /v1/messages."""

    max_tokens: int = Field(ge=1, lt=1 << 31, description="most tokens of the answer")
    stop_sequences: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=1 << 31)
    metadata: Metadata | None = None
    service_tier: str | None = None

    def as_chat(self) -> dict[str, Any]:
        own = ("max_tokens", "stream", "temperature", "top_p", "top_k")
        return {**super().as_chat(), **{name: getattr(self, name) for name in own}, "stop": self.stop_sequences or None}

    def notes(self) -> tuple[str, ...]:
        """What is accepted and does less than it says."""
        found = []
        if self.thinking is not None and self.thinking.budget_tokens is not None:
            found.append("thinking.budget_tokens is not kept to here; max_tokens counts thoughts too")
        if self.context_management:
            found.append("context_management is accepted and cuts nothing from the messages here")
        return tuple(found)
