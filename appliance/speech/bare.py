"""Calls as bare JSON, which Llama 3 writes as its whole answer. Not here: calls behind a marker.

    {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}

Llama 3.1 may put <|python_tag|> before it. An answer that begins with `{` and is something else is text.
"""

from appliance.speech.callobject import CallObject
from appliance.speech.forms import Calls, Form, Tools
from appliance.speech.grammar import Schemas, json_calls
from appliance.speech.jsontext import SPACE

PYTHON = "<|python_tag|>"


class Bare(Form):
    """Calls one after the other, with semicolons or line breaks between."""

    openers = (PYTHON,)
    is_bare = True

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._object = CallObject(tools)
        self._n = 0

    def feed(self, text: str, calls: Calls) -> str | None:
        while text:
            if not self._object.is_done:
                text = self._object.feed(text, calls)
            elif text[0] in SPACE + ";,":
                text = text[1:]
            elif text[0] == "{":
                self._object = CallObject(self.tools)
            else:
                return text
        return None

    def finish(self, calls: Calls) -> None:
        self._object.end(calls)

    @classmethod
    def begin(cls, name: str | None, template: str) -> str:
        return f'{{"name": "{name}", "parameters":' if name else '{"name":'

    @classmethod
    def rest(cls, name: str | None, template: str, schemas: Schemas) -> str:
        return json_calls(schemas, lambda n: " " if name else f' "{n}", "parameters": ', "}")
