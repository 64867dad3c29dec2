"""The tools of a chat request, as pydantic models. Not here: calls of them.

What is not named is left alone: a tool goes into the prompt as it was sent, key by key in the order given.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

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


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_once)]
