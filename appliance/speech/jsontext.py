"""One JSON value as it comes in, checked character by character and passed on at once. Not here: what it means.

Models slip in four ways that leave no doubt what was meant, and those are set right: line breaks inside a string, an
escape that JSON lacks, a comma before a closing bracket, Python's True, False and None. Else it is a ValueError.
"""

import json
import re

SPACE = " \t\r\n"
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
MAX_DEPTH = 64
CLOSERS = {"{": "}", "[": "]"}


class JsonText:
    """Takes text until its value is complete; `is_done` then. Numbers end with what follows them, or with `end`."""

    def __init__(self) -> None:
        self.is_done = False
        self._open: list[str] = []
        self._expects = "value"
        self._in_string = False
        self._escape = ""
        self._word = ""
        self._comma = ""

    def feed(self, text: str) -> tuple[str, str]:
        """(valid JSON text that can be passed on, the text behind the value)."""
        out: list[str] = []
        for at, char in enumerate(text):
            if self.is_done:
                return "".join(out), text[at:]
            if self._in_string:
                out.append(self._string(char))
            elif self._word and char not in SPACE + ",]}:":
                self._word += char
                if len(self._word) > 400:
                    raise ValueError("a word without end")
            else:
                if self._word:
                    out.append(self._ended_word())
                    if self.is_done:
                        return "".join(out), text[at:]
                out.append(self._structure(char))
        return "".join(out), ""

    def end(self) -> str:
        """The rest of a value that only lacks its closing brackets; ValueError if it lacks more."""
        out = self._ended_word() if self._word else ""
        if self.is_done:
            return out
        if self._in_string or self._expects not in ("next", "first key", "first item", "key", "item"):
            raise ValueError("the text ends inside a value")
        while self._open:
            out += CLOSERS[self._open.pop()]
        self.is_done = True
        return out

    def _string(self, char: str) -> str:
        if self._escape:
            return self._escaped(char)
        if char == "\\":
            self._escape = char
            return ""
        if char == '"':
            self._in_string = False
            if self._expects == "key text":
                self._expects = "colon"
            else:
                self._value_ended()
            return char
        return json.dumps(char)[1:-1] if char < " " else char

    def _escaped(self, char: str) -> str:
        escape, self._escape = self._escape + char, ""
        if escape[1] == "u":
            if len(escape) > 2 and char not in "0123456789abcdefABCDEF":
                raise ValueError("an escape that is no character")
            if len(escape) < 6:
                self._escape = escape
                return ""
            return escape
        if char in '"\\/bfnrt':
            return escape
        return char if char == "'" else "\\" + (escape if char >= " " else "\\" + json.dumps(char)[1:-1])

    def _structure(self, char: str) -> str:
        if char in SPACE:
            self._comma += char if self._comma else ""
            return char if self._open and not self._comma else ""
        if char in "}]":
            return self._closed(char)
        comma, self._comma = self._comma, ""
        expects = self._expects
        if char == "," and expects == "next":
            self._expects, self._comma = ("key" if self._open[-1] == "{" else "item"), char
            return ""
        if char == ":" and expects == "colon":
            self._expects = "value"
            return char
        if char == '"' and expects in ("first key", "key"):
            self._expects, self._in_string = "key text", True
            return comma + char
        if expects not in ("value", "first item", "item"):
            raise ValueError(f"{char!r} where it cannot stand")
        if char == '"':
            self._in_string = True
        elif char in "{[":
            if len(self._open) == MAX_DEPTH:
                raise ValueError("too many levels")
            self._open.append(char)
            self._expects = "first key" if char == "{" else "first item"
        elif char in "-0123456789tfnTFN":
            self._word = char
            return comma
        else:
            raise ValueError(f"{char!r} where a value is expected")
        return comma + char

    def _closed(self, char: str) -> str:
        fits = ("next", "first key", "key") if char == "}" else ("next", "first item", "item")
        if not self._open or CLOSERS[self._open[-1]] != char or self._expects not in fits:
            raise ValueError(f"{char!r} where it cannot stand")
        self._comma = ""
        self._open.pop()
        self._value_ended()
        return char

    def _ended_word(self) -> str:
        word, self._word = self._word, ""
        if word not in WORDS and not NUMBER.fullmatch(word):
            raise ValueError("a word that is no value")
        self._value_ended()
        return WORDS.get(word, word)

    def _value_ended(self) -> None:
        self._expects = "next"
        self.is_done = not self._open
