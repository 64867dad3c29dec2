"""`{"name": …, "arguments": {…}}` as it comes in, whatever the order of its keys. Not here: markers around it."""

import json
from collections.abc import Container

from appliance.speech.events import NotACall, bad_call
from appliance.speech.forms import Calls
from appliance.speech.jsontext import SPACE, JsonText

NAME = "name"
ARGUMENTS = ("arguments", "parameters")
KEYS = (NAME, *ARGUMENTS, "id", "type")
MOST_HELD = 1 << 20
"""Arguments that come before the name wait for it; no tool takes a megabyte."""


class CallObject:
    """One call; `name` once it is known to be one of `names`."""

    def __init__(self, names: Container[str]) -> None:
        self.name: str | None = None
        self.is_done = False
        self._names = names
        self._state = "open"
        self._key = ""
        self._value = JsonText()
        self._text = ""
        self._held = ""
        self._has_arguments = False

    def feed(self, text: str, calls: Calls) -> str:
        """The text behind the object, "" while it goes on. NotACall or BadCall says what is wrong."""
        try:
            while text and not self.is_done:
                known = self.name
                piece, text = self._step(text)
                self._tell(known, piece, calls)
        except ValueError:
            raise self._wrong() from None
        return text

    def end(self, calls: Calls) -> None:
        """The answer has ended here: well if only closing brackets are missing."""
        if self.is_done:
            return
        known, piece = self.name, ""
        try:
            if self._state == "value" and not self._value.is_done:
                piece = self._took(self._value.end()) + self._value_ended()
            if self._state != "next":
                raise ValueError("the text ends inside a call")
            self._tell(known, piece + self._close(), calls)
        except ValueError:
            raise self._wrong() from None

    def _tell(self, known: str | None, piece: str, calls: Calls) -> None:
        if known is None and self.name is not None:
            calls.began(self.name)
        calls.wrote(piece)

    def _wrong(self) -> Exception:
        return NotACall() if self.name is None else bad_call(self.name)

    def _step(self, text: str) -> tuple[str, str]:
        if self._state in ("key", "value"):
            piece, rest = self._value.feed(text)
            out = self._took(piece)
            return (out + self._value_ended() if self._value.is_done else out), rest
        char, rest = text[0], text[1:]
        if char in SPACE or (char == "," and self._state == "next"):
            return "", rest
        if self._state == "open" and char == "{":
            self._state = "next"
        elif self._state == "next" and char == '"':
            self._begin("key")
            return "", text
        elif self._state == "next" and char == "}":
            return self._close(), rest
        elif self._state == "next" and char == "<" and self.name is not None:
            return self._close(), text  # the closing tag, where the last bracket was forgotten
        elif self._state == "colon" and char == ":":
            self._state = "colon passed"
        elif self._state == "colon passed":
            self._begin("value")
            return "", text
        else:
            raise ValueError(f"{char!r} where it cannot stand")
        return "", rest

    def _begin(self, what: str) -> None:
        self._state, self._value, self._text = what, JsonText(), ""

    def _took(self, piece: str) -> str:
        """A piece of the value under way: arguments go on at once if their tool is known."""
        if self._state == "value" and self._key in ARGUMENTS:
            if self._has_arguments or (not self._text and piece and piece[0] not in '{"n'):
                raise ValueError("arguments are one object")
            if self.name is not None and (self._text or piece)[:1] == "{":
                self._text = "{"
                return piece
        self._text += piece
        if len(self._text) > MOST_HELD:
            raise ValueError("too much")
        return ""

    def _value_ended(self) -> str:
        if self._state == "key":
            self._key, self._state = json.loads(self._text), "colon"
            if self.name is None and self._key not in KEYS:
                raise ValueError("no key of a call")  # a JSON answer need not wait for its end
            return ""
        self._state = "next"
        if self._key in ARGUMENTS:
            self._has_arguments = True
            if self.name is not None and self._text == "{":
                return ""
            # Some models write the object as text inside a string, and null where there is nothing to say.
            arguments = json.loads(self._text) if self._text[0] == '"' else self._text
            if not isinstance(json.loads(arguments), dict | None):
                raise ValueError("arguments are an object")
            self._held = "{}" if arguments == "null" else arguments
        elif self._key == NAME:
            found = json.loads(self._text)
            if self.name is not None or not isinstance(found, str) or found not in self._names:
                raise ValueError("nobody offers that")
            self.name = found
        return self._release()

    def _release(self) -> str:
        if self.name is None:
            return ""
        held, self._held = self._held, ""
        return held

    def _close(self) -> str:
        if self.name is None:
            raise ValueError("a call without a name")
        self.is_done = True
        return self._release() or ("" if self._has_arguments else "{}")
