"""A compiled chat template and the shape in which it takes a conversation. Not here: its process (renderer.py).

Templates disagree on what a message holds: content as text or as a list of parts, arguments of a call as an object or
as JSON text, thoughts under three names, a system message or none. What a template wants is found by letting it render
a marked message, once, when the first conversation needs to know.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any

OUTPUT = 4 << 20
NEEDLE = "[[colibri]]"
CALL_ID = "colibri09"  # Mistral's templates take ids of nine letters and digits only
NO_TOOLS = "it has no place for tools; leave tools out, or start the server with a template that shows them"

Message = dict[str, Any]


class Refusal(Exception):
    """What a template says by raise_exception(), or what is said of it."""


def _raise(message: object = "") -> None:
    raise Refusal(str(message))


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    """As transformers has it: no HTML escapes, keys in the order given."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> Any:
    """A sandbox with the filters, globals and tags that chat templates count on."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks the assistant's part for training; for rendering it is what it holds."""

        tags = {"generation"}  # noqa: RUF012  jinja2 declares it as an instance variable

        def parse(self, parser: Parser) -> nodes.Node:
            next(parser.stream)
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body)  # what is set inside ends with it, as in transformers

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    del made.globals["lipsum"]
    return made


class Template:
    """One template, compiled. Whatever a template may raise comes through; MemoryError ends the process."""

    def __init__(self, made_in: Any, source: str) -> None:
        self._compiled = made_in.from_string(source)
        self._source = source

    def try_out(self) -> None:
        """Render something, for the time and memory that it takes; that it refuses odd messages is no fault."""
        _ = self._takes_parts

    def render(self, context: Mapping[str, Any], now: datetime) -> str:
        """The prompt; Refusal for tools that the template would leave out in silence."""
        tools = context.get("tools")
        if tools and not self._shows_tools:
            raise Refusal(NO_TOOLS)
        context = {**context, "messages": self._fit(context["messages"])}
        try:
            return self._run(context, now)
        except (MemoryError, Refusal):
            raise
        except Exception:
            # OpenAI lets a tool come without description and parameters; not every template does.
            if not tools or (whole := _whole(tools)) == tools:
                raise
            return self._run({**context, "tools": whole}, now)

    def _fit(self, messages: Sequence[Message]) -> list[Message]:
        """Copies of the messages as this template takes them."""
        messages = [dict(message) for message in messages]
        if any(m["role"] == "system" for m in messages) and not self._takes_system:
            messages = _folded(messages)
        names: dict[str, str] = {}
        for message in messages:
            if message.get("tool_calls"):
                if not message["content"]:
                    message["content"] = self._call_shape[0]
                message["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
                names |= {call.get("id", ""): call["function"]["name"] for call in message["tool_calls"]}
            if message["role"] == "tool" and "name" not in message and message.get("tool_call_id") in names:
                message["name"] = names[message["tool_call_id"]]
            if "reasoning_content" in message:
                message |= self._thoughts(message)
            if self._takes_parts and message["content"] is not None:
                message["content"] = _parts(message["content"])
        return messages

    def _call(self, call: Mapping[str, Any]) -> Message:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str) and not self._call_shape[1]:
            with suppress(ValueError, RecursionError):  # a model's own slip comes back as the text that it was
                found = json.loads(function["arguments"] or "{}")
                function["arguments"] = found if isinstance(found, dict) else function["arguments"]
        return {**call, "function": function}

    def _thoughts(self, message: Message) -> Message:
        """An earlier turn's reasoning under the name that this template knows it by."""
        if "reasoning_content" in self._source or (message.get("tool_calls") and message["content"]):
            return {}  # harmony refuses a call with both, and content is what the user saw
        return {name: message["reasoning_content"] for name in ("thinking", "reasoning") if self._knows(name)}

    def _knows(self, key: str) -> bool:
        return re.search(rf"[.'\"]{key}\b", self._source) is not None

    @cached_property
    def _takes_parts(self) -> bool:
        text, parts = ([{"role": "user", "content": content}] for content in (NEEDLE, _parts(NEEDLE)))
        return not self._shows(text) and self._shows(parts)

    @cached_property
    def _takes_system(self) -> bool:
        user = {"role": "user", "content": self._content("x")}
        with_one = [{"role": "system", "content": self._content(NEEDLE)}, user]
        return self._shows(with_one) or not self._shows([{"role": "user", "content": self._content(NEEDLE)}])

    @cached_property
    def _shows_tools(self) -> bool:
        user = [{"role": "user", "content": self._content("x")}]
        return self._shows(user, tools=[_tool(NEEDLE)]) or not self._shows(user, needle="x", tools=[_tool("f")])

    @cached_property
    def _call_shape(self) -> tuple[str | None, bool]:
        """What stands for content in a turn that only calls, and whether arguments are JSON text.

        An object is what transformers documents; a template that joins text or prints Python wants text. Some show
        calls only where content is null, and leave them out in silence where it is empty.
        """
        as_object, as_text = {NEEDLE: "x"}, json.dumps({NEEDLE: "x"})
        shapes = [(content, is_text) for content in ("", None) for is_text in (False, True)]
        return next((s for s in shapes if self._shows_call(as_text if s[1] else as_object, s[0])), shapes[0])

    def _shows_call(self, arguments: object, content: str | None) -> bool:
        call = {"id": CALL_ID, "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [
            {"role": "user", "content": self._content("x")},
            {"role": "assistant", "content": content and self._content(content), "tool_calls": [call]},
            {"role": "tool", "content": self._content("x"), "tool_call_id": CALL_ID, "name": "f"},
        ]
        return self._shows(messages, tools=[_tool("f")], but=f"'{NEEDLE}'")

    def _content(self, text: str) -> object:
        return _parts(text) if self._takes_parts else text

    def _shows(self, messages: list[Message], *, needle: str = NEEDLE, but: str | None = None,
               tools: list[Message] | None = None) -> bool:  # fmt: skip
        context = {
            "messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True, "bos_token": "",
            "eos_token": "",
        }  # fmt: skip
        try:
            shown = self._run(context, datetime.now())
        except MemoryError:
            raise
        except Exception:
            return False
        return needle in shown and (but is None or but not in shown)

    def _run(self, context: Mapping[str, Any], now: datetime) -> str:
        # A variable, not a global: compiled templates are kept and the clock is not.
        out: list[str] = []
        size = 0
        for chunk in self._compiled.generate({**context, "strftime_now": now.strftime}):
            size += len(chunk)
            if size <= OUTPUT:
                size += len(chunk.encode("utf-8", "surrogatepass")) - len(chunk)
            if size > OUTPUT:
                raise Refusal(f"it writes more than {OUTPUT >> 20} MB")
            out.append(chunk)
        return "".join(out)


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _folded(messages: Sequence[Message]) -> list[Message]:
    """System messages at the head of the user's next turn, for families that were trained without them."""
    out: list[Message] = []
    held: list[str] = []
    for message in messages:
        if message["role"] == "system":
            held.append(message["content"])
        elif message["role"] == "user" and held:
            out.append({**message, "content": "\n\n".join([*held, message["content"]])})
            held = []
        else:
            out.append(message)
    return [*out, {"role": "user", "content": "\n\n".join(held)}] if held else out


def _tool(name: str) -> Message:
    parameters = {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}, "required": ["x"]}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def _whole(tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    empty = {"description": "", "parameters": {"type": "object", "properties": {}, "required": []}}
    return [{**tool, "function": {**empty, **tool["function"]}} for tool in tools]
