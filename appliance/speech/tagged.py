"""Calls between <tool_call> tags: as JSON (Hermes, Qwen, Granite 4), as tags (Qwen3-Coder), as pairs (GLM). Not here:
other markers.

    <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
    <tool_call><function=f><parameter=a>1</parameter></function></tool_call>
    <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>

Which of the three it is shows behind the tag; white space and line breaks between tags count for nothing.
"""

import re

from appliance.speech.arguments import MarkedArguments
from appliance.speech.callobject import CallObject
from appliance.speech.events import NotACall
from appliance.speech.forms import Calls, Form, Tools, behind
from appliance.speech.grammar import Schemas, json_calls, tagged_calls

OPENER, CLOSER = "<tool_call>", "</tool_call>"
FUNCTION = "<function="
PARAMETER = re.compile(r"<parameter=([^>\n]{1,200})>\n?(.*?)\n?</parameter>", re.DOTALL)
ARGUMENT = re.compile(r"<arg_key>(.{1,200}?)</arg_key>\s*<arg_value>\n?(.*?)\n?</arg_value>", re.DOTALL)
NAME = re.compile(r"[\w.:-]{1,64}")
LONGEST_NAME = 64


class Tagged(Form):
    """One call between tags."""

    openers, closer = (OPENER,), CLOSER

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._text = ""
        self._object: CallObject | None = None
        self._marked: MarkedArguments | None = None
        self._closers = [CLOSER]

    def feed(self, text: str, calls: Calls) -> str | None:
        if self._object is None and self._marked is None:
            text = self._text = self._text + text
            if not self._begin(calls):
                return None
            text, self._text = self._text, ""
        if self._object is not None and not self._object.is_done:
            text = self._object.feed(text, calls)
        elif self._marked is not None and not self._marked.is_done:
            text = self._marked.feed(text, calls)
        else:
            text = self._text + text
        if not (self._object or self._marked).is_done:  # type: ignore[union-attr]
            return None
        return self._close(text)

    def finish(self, calls: Calls) -> None:
        if self._object is not None:
            self._object.end(calls)
        elif self._marked is not None:
            self._marked.end(calls)
        else:
            raise NotACall

    @classmethod
    def begin(cls, name: str | None, template: str) -> str:
        if FUNCTION in template:
            return f"{OPENER}\n{FUNCTION}{name}>\n" if name else f"{OPENER}\n{FUNCTION}"
        if "<arg_key>" in template:
            return f"{OPENER}{name}\n" if name else OPENER
        return f'{OPENER}\n{{"name": "{name}", "arguments":' if name else f'{OPENER}\n{{"name":'

    @classmethod
    def rest(cls, name: str | None, template: str, schemas: Schemas) -> str:
        if FUNCTION in template:
            tags = ("<parameter={}>\n", "\n</parameter>\n")
            head, tail = ("" if name else "{}>\n"), f"</function>\n{CLOSER}"
        elif "<arg_key>" in template:
            tags = ("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n")
            head, tail = ("" if name else "{}\n"), CLOSER
        else:
            return json_calls(schemas, lambda n: " " if name else f' "{n}", "arguments": ', f"}}\n{CLOSER}")
        return tagged_calls(schemas, head.format, lambda key: (tags[0].format(key), tags[1]), tail)

    def _begin(self, calls: Calls) -> bool:
        """Find out which of the three it is; False while it does not show."""
        text = self._text.lstrip()
        if not text or (len(text) < len(FUNCTION) and FUNCTION.startswith(text)):
            return False
        if text[0] == "{":
            self._object, self._text = CallObject(self.tools), text
            return True
        if text.startswith(FUNCTION):
            name, ended, rest = text[len(FUNCTION) :].partition(">")
            pair, closer = PARAMETER, "</function>"
        else:
            found = NAME.match(text)
            name = found[0] if found else ""
            rest, ended = text[len(name) :], text[len(name) : len(name) + 1]
            pair, closer = ARGUMENT, CLOSER
        if len(name) > LONGEST_NAME or (ended and name.strip() not in self.tools):
            raise NotACall
        if not ended:
            return False
        calls.began(name.strip())
        self._marked, self._text = MarkedArguments(name.strip(), self.tools[name.strip()], pair, closer), rest
        self._closers = [] if closer == CLOSER else [CLOSER]
        return True

    def _close(self, text: str) -> str | None:
        if not self._closers:
            return text
        rest = behind(text, self._closers[0])
        self._text = text if rest is None else ""
        return rest
