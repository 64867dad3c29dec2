"""Calls between DeepSeek's own tokens, of V3 and R1 and of V3.1. Not here: other forms.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Before V3.1 a call was `function<｜tool▁sep｜>f`, then its arguments on lines of their own between ```json and ```.
"""

import re

from appliance.speech.arguments import BareArguments
from appliance.speech.events import NotACall
from appliance.speech.forms import Calls, Form, Tools
from appliance.speech.grammar import Schemas, json_calls

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
HEAD = re.compile(rf"\s*(?:{CALL})?(?:function{SEP}([\w.:-]+)\s*```(?:json)?\s*|([\w.:-]+){SEP}\s*)(?=\{{)")
TAIL = re.compile(rf"[\s`]*{CALL_END}")
MOST = 300


class DeepSeek(Form):
    """All calls of an answer."""

    openers = (BEGIN, CALL)  # a model that leaves out the outer one means the same
    closer = CALL_END

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._text = ""
        self._arguments: BareArguments | None = None

    def feed(self, text: str, calls: Calls) -> str | None:
        self._text += text
        while self._text:
            if self._arguments is not None and not self._arguments.is_done:
                self._text = self._arguments.feed(self._text, calls)
                continue
            stripped = self._text.lstrip()
            if stripped.startswith(END):
                return stripped[len(END) :]
            if self._arguments is not None:
                if (tail := TAIL.match(self._text)) is None:
                    return None if len(self._text) < MOST else self._text
                self._arguments, self._text = None, self._text[tail.end() :]
                continue
            found = HEAD.match(self._text)
            if found is None:
                if len(self._text) > MOST:
                    raise NotACall
                return None
            name = found[1] or found[2]
            if name not in self.tools:
                raise NotACall
            calls.began(name)
            self._arguments, self._text = BareArguments(name), self._text[found.end() :]
        return None

    def finish(self, calls: Calls) -> None:
        if self._arguments is not None:
            self._arguments.end(calls)
        elif self._text.strip():
            raise NotACall

    @classmethod
    def begin(cls, name: str | None, template: str) -> str:
        if f"function{SEP}" in template or "```json" in template:
            return f"{BEGIN}{CALL}function{SEP}{name}\n```json\n" if name else f"{BEGIN}{CALL}function{SEP}"
        return f"{BEGIN}{CALL}{name}{SEP}" if name else f"{BEGIN}{CALL}"

    @classmethod
    def rest(cls, name: str | None, template: str, schemas: Schemas) -> str:
        return json_calls(schemas, lambda _: "", "\n```" if "```json" in template else "") if name else ""
