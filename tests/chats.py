"""Conversations that every real chat template must render as transformers does. Not here: templates, their renderings.

As a client of the API sends them: arguments are JSON text, a tool's answer names only its call.
"""

from datetime import datetime
from typing import Any, NamedTuple

NOW = datetime(2026, 1, 2, 3, 4, 5)
BOS, EOS = "<s>", "</s>"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city <now>, 'today' & tomorrow",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name"},
                "days": {"type": "integer", "description": "How many days"},
                "unit": {"type": "string", "enum": ["C", "F"], "description": "The unit"},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time of day",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "description": "Zone"}}},
    },
}
TOOLS = [WEATHER, CLOCK]


def _says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _call(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = _says("system", "Be short.")
HI = _says("user", "What's up in Zürich, <5> days?")
OSLO = _call(1, "get_weather", '{"city": "Zürich <5>", "days": 2}')
TIME = _call(2, "get_time", '{"zone": "UTC+1"}')


class Chat(NamedTuple):
    """One conversation with what else a template is given."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}
    add_generation_prompt: bool = True


CHATS = {
    "a question": Chat([HI]),
    "with a system message": Chat([SYSTEM, HI]),
    "several turns": Chat([SYSTEM, HI, _says("assistant", "Rain."), _says("user", "And tomorrow?")]),
    "ends with an answer": Chat([HI, _says("assistant", "Rain.")], add_generation_prompt=False),
    "tools are offered": Chat([SYSTEM, HI], TOOLS),
    "a tool was called": Chat(
        [
            SYSTEM,
            HI,
            _says("assistant", "", tool_calls=[OSLO]),
            _says("tool", '{"sky": "rain"}', tool_call_id="call00001"),
        ],
        TOOLS,
    ),
    "two tools were called": Chat(
        [
            HI,
            _says("assistant", "", tool_calls=[OSLO, TIME]),
            _says("tool", "rain", tool_call_id="call00001"),
            _says("tool", "noon", tool_call_id="call00002"),
            _says("assistant", "Rain at noon."),
            _says("user", "Thanks."),
        ],
        TOOLS,
    ),
    "thinking on": Chat(
        [HI, _says("assistant", "Rain.", reasoning_content="Swiss weather."), _says("user", "Sure?")],
        extra={"enable_thinking": True},
    ),
    "thinking off": Chat(
        [HI, _says("assistant", "Rain.", reasoning_content="Swiss weather."), _says("user", "Sure?")],
        extra={"enable_thinking": False},
    ),
    "a thought before a call": Chat(
        [
            HI,
            _says("assistant", "", reasoning_content="I must look.", tool_calls=[OSLO]),
            _says("tool", "rain", tool_call_id="call00001"),
        ],
        TOOLS,
        {"enable_thinking": True},
    ),
}
