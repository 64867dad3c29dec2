"""The tools of a chat request, as pydantic models. Not here: calls of them in an answer (appliance/speech).

What is not named is left alone: a tool goes into the prompt as it was sent, key by key in the order given.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from appliance.speech.toolset import ToolSet
from engine.errors import InvalidParameter

MAX_TOOLS = 128
"""OpenAI's own limit."""

FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def _named(name: str) -> str:
    if not FUNCTION_NAME.fullmatch(name):
        raise PydanticCustomError("function_name", "1 to 64 of the characters a-z, A-Z, 0-9 and _ . : - expected")
    return name


FunctionName = Annotated[str, AfterValidator(_named)]


class Function(BaseModel):
    """`parameters` is a JSON schema; without it the function takes nothing."""

    model_config = ConfigDict(strict=True, extra="ignore")
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    type: Literal["function"]
    function: Function


def _once(tools: list[Tool]) -> list[Tool]:
    names = [tool.function.name for tool in tools]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        text = "two tools are called {name}; a call could mean either"
        raise PydanticCustomError("name_twice", text, {"name": twice})
    return tools


class _Name(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    name: str


class NamedTool(BaseModel):
    """The call that must be made."""

    model_config = ConfigDict(strict=True, extra="ignore")
    type: Literal["function"]
    function: _Name


Choice = Literal["none", "auto", "required"] | NamedTool


def as_sent(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools for a template: as they were sent, but null is as good as left out, and some would write it down."""
    return [{**t, "function": {k: v for k, v in t["function"].items() if v is not None}} for t in tools]


def chosen(tools: list[dict[str, Any]] | None, choice: Choice | None, parallel: bool | None) -> ToolSet | None:
    """The tools as an answer may use them; None where it may not. InvalidParameter for a call that cannot be made."""
    if choice == "none" or (not tools and choice in (None, "auto")):
        return None
    if not tools:
        raise InvalidParameter("tool_choice asks for a call, and tools is empty; send the tools", param="tool_choice")
    most = 1 if parallel is False else None
    tools = as_sent(tools)
    if not isinstance(choice, NamedTool):
        return ToolSet(tools, must=choice == "required", most=most)
    name = choice.function.name
    if name not in (tool["function"]["name"] for tool in tools):
        raise InvalidParameter("tool_choice names a function that is none of tools", param="tool_choice")
    return ToolSet(tools, must=True, name=name, most=1)


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_once)]
