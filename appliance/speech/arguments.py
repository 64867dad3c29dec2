"""Arguments of a call whose name is known: a bare JSON object, or marked pairs that become one. Not here: markers."""

import json
import re
from collections.abc import Mapping

from appliance.speech.events import bad_call
from appliance.speech.forms import Calls
from appliance.speech.jsontext import JsonText


class BareArguments:
    """`{…}` as it comes in; nothing at all counts as `{}`."""

    def __init__(self, name: str) -> None:
        self.is_done = False
        self._name = name
        self._value = JsonText()
        self._has_begun = False

    def feed(self, text: str, calls: Calls) -> str:
        """The text behind the object, "" while it goes on."""
        try:
            out, rest = self._value.feed(text)
        except ValueError:
            raise bad_call(self._name) from None
        if out and not self._has_begun and out[0] != "{":
            raise bad_call(self._name)
        self._has_begun = self._has_begun or bool(out)
        calls.wrote(out)
        self.is_done = self._value.is_done
        return rest

    def end(self, calls: Calls) -> None:
        """The model has stopped: close what only lacks brackets."""
        if self.is_done:
            return
        try:
            calls.wrote(self._value.end() if self._has_begun else "{}")
        except ValueError:
            raise bad_call(self._name) from None
        self.is_done = True


class MarkedArguments:
    """Pairs of name and value in markup; `pair` finds one at the text's beginning, `closer` ends them all."""

    def __init__(self, name: str, types: Mapping[str, str], pair: re.Pattern[str], closer: str) -> None:
        self.is_done = False
        self._name, self._types = name, types
        self._pair, self._closer = pair, closer
        self._text = ""
        self._keys: set[str] = set()

    def feed(self, text: str, calls: Calls) -> str:
        """The text behind the closer, "" while it goes on. A value is told when it is whole."""
        self._text = (self._text + text).lstrip()
        while ">" in text and (found := self._pair.match(self._text)):  # a pair ends with a tag
            self._tell(found[1].strip(), found[2], calls)
            self._text = self._text[found.end() :].lstrip()
        if not self._text.startswith(self._closer):
            return ""
        rest, self._text = self._text[len(self._closer) :], ""
        self.end(calls)
        return rest

    def end(self, calls: Calls) -> None:
        """The model has stopped, or has closed the call."""
        if self._text and not self._closer.startswith(self._text):
            raise bad_call(self._name)
        if not self.is_done:
            calls.wrote("}" if self._keys else "{}")
            self.is_done = True

    def _tell(self, key: str, value: str, calls: Calls) -> None:
        if key in self._keys:
            raise bad_call(self._name)
        calls.wrote((", " if self._keys else "{") + json.dumps(key, ensure_ascii=False) + ": " + self._json(key, value))
        self._keys.add(key)

    def _json(self, key: str, value: str) -> str:
        """The value as the tool's schema wants it: what is no text there is JSON, if it can be read as such."""
        if self._types.get(key, "") not in ("", "string"):
            word = JsonText()
            try:
                out, rest = word.feed(value.strip())
                out += word.end()
                if not rest.strip():
                    return out
            except ValueError:
                pass
        return json.dumps(value, ensure_ascii=False)
