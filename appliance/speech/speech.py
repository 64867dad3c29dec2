"""How one answer is to be read: where its thoughts stand, how it calls tools. Not here: the reading (reader.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.speech.bare import PYTHON, Bare
from appliance.speech.deepseek import BEGIN, CALL, CALL_END, END, SEP, DeepSeek
from appliance.speech.forms import Form, Tools
from appliance.speech.listed import END as LIST_END
from appliance.speech.listed import Listed
from appliance.speech.tagged import CLOSER, OPENER, Tagged

THINK = ("<think>", "</think>")
THOUGHTS = (("[THINK]", "[/THINK]"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("<seed:think>", "</seed:think>"))
MINIMAX = "]<]minimax[>["  # stands before each of its tags, which are others' by name
CHANNEL, MESSAGE = "<|channel|>", "<|message|>"
CALL_MARKERS = frozenset({
    OPENER, CLOSER, *Listed.openers, LIST_END, "[CALL_ID]", "[ARGS]", PYTHON, BEGIN, END, CALL, SEP, CALL_END,
})  # fmt: skip
"""Tokens of all forms of calls; most files call them control tokens, which are not shown."""


@dataclass(frozen=True, slots=True)
class Speech:
    """`thought` is the pair of marks around reasoning; `is_thinking`: the prompt has opened it already. `form` reads
    calls of `tools`; `begun` is the beginning of an answer that stands in the prompt. `is_harmony`: everything is in
    channels. `must`: an answer without a call is none. `stop` are texts that end the answer besides the client's:
    nothing is wanted behind an only call. `grammar` is that of a begun call's rest, for who can enforce it."""

    thought: tuple[str, str] | None = None
    is_thinking: bool = False
    form: type[Form] | None = None
    tools: Tools = field(default_factory=dict)
    most_calls: int | None = None
    begun: str = ""
    is_harmony: bool = False
    stop: tuple[str, ...] = ()
    must: bool = False
    grammar: str = ""


PLAIN = Speech()
"""All of it is text."""


def is_harmony(template: str) -> bool:
    return CHANNEL in template and MESSAGE in template


def thought_of(template: str) -> tuple[str, str]:
    """The marks a family puts around its thoughts. `<think>` counts for every other one: an answer that begins with it
    is thinking, whatever its template knows of that."""
    return next((pair for pair in THOUGHTS if pair[0] in template and THINK[0] not in template), THINK)


def form_of(template: str) -> type[Form] | None:
    """The form that a template teaches its model to call tools in, if it is one that is read here."""
    if any(opener in template for opener in Listed.openers):
        return Listed
    if OPENER in template and MINIMAX not in template:
        return Tagged
    if BEGIN in template:
        return DeepSeek
    if "<|start_header_id|>" in template and '"parameters": ' in template:
        return Bare
    return None


def types_of(tools: Sequence[Mapping[str, Any]]) -> Tools:
    """Each tool's parameters with their types, as far as the schema says them plainly."""
    found: dict[str, dict[str, str]] = {}
    for tool in tools:
        function = tool["function"]
        properties = (function.get("parameters") or {}).get("properties")
        rows = properties.items() if isinstance(properties, dict) else ()
        found[function["name"]] = {key: _type(value) for key, value in rows}
    return found


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    return kind if isinstance(kind, str) else ""
