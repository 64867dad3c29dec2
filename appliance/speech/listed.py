"""Calls in a JSON list or by name behind one marker: Mistral's forms, Granite 3's, Apriel's. Not here: tags per call.

    [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}, …]      Mistral until 2024
    [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}            Mistral since, with or without an id
    <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]                           Granite 3
    <tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>               Apriel; MiniMax M1 without brackets
"""

import re

from appliance.speech.arguments import BareArguments
from appliance.speech.callobject import CallObject
from appliance.speech.events import NotACall
from appliance.speech.forms import Calls, Form, Tools, behind
from appliance.speech.grammar import Schemas, json_calls
from appliance.speech.jsontext import SPACE

MISTRAL, GRANITE, APRIEL = "[TOOL_CALLS]", "<|tool_call|>", "<tool_calls>"
END = "</tool_calls>"
HEAD = re.compile(r"\s*([\w.:-]{1,64})\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\]|(?=\{))\s*")
MOST_HEAD = 200


class Listed(Form):
    """All calls behind one marker."""

    openers = (MISTRAL, GRANITE, APRIEL)

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._text = ""
        self._object: CallObject | None = None
        self._bare: BareArguments | None = None
        self._is_list = self._is_over = False

    def feed(self, text: str, calls: Calls) -> str | None:
        text = self._text + text
        self._text = ""
        while text:
            if self._bare is not None:
                text = self._bare.feed(text, calls)
                return text if self._bare.is_done else None
            if self._object is not None and not self._object.is_done:
                text = self._object.feed(text, calls)
                continue
            if text[0] in SPACE or (text[0] == "," and self._object is not None):
                text = text[1:]
            elif self._is_over or (self._object is not None and not self._is_list and text[0] != "{"):
                rest = behind(text, END)
                self._text = text if rest is None else ""
                return rest
            elif text[0] == "]" and self._is_list:
                self._is_over, text = True, text[1:]
            elif text[0] == "[" and not self._is_list:
                self._is_list, text = True, text[1:]
            elif text[0] == "{":
                self._object = CallObject(self.tools)
            elif self._is_list:
                raise NotACall
            elif (found := HEAD.match(text)) is not None:
                if found[1] not in self.tools:
                    raise NotACall
                calls.began(found[1])
                self._bare, text = BareArguments(found[1]), text[found.end() :]
            else:
                if len(text) > MOST_HEAD or not re.match(r"[\w.:\[\]-]", text):
                    raise NotACall
                self._text = text
                return None
        return None

    def finish(self, calls: Calls) -> None:
        if self._bare is not None:
            self._bare.end(calls)
        elif self._object is not None:
            self._object.end(calls)
        elif self._text.strip() in self.tools:
            calls.began(self._text.strip())
            calls.wrote("{}")
        else:
            raise NotACall

    @classmethod
    def begin(cls, name: str | None, template: str) -> str:
        if "[ARGS]" in template:
            return f"{MISTRAL}{name}[ARGS]" if name else MISTRAL
        opener = next(marker for marker in cls.openers if marker in template)
        return f'{opener}[{{"name": "{name}", "arguments":' if name else f'{opener}[{{"name":'

    @classmethod
    def rest(cls, name: str | None, template: str, schemas: Schemas) -> str:
        if "[ARGS]" in template:
            return json_calls(schemas, lambda _: "", "") if name else ""
        tail = "}]" + (END if MISTRAL not in template and GRANITE not in template else "")
        return json_calls(schemas, lambda n: " " if name else f' "{n}", "arguments": ', tail)
