"""Keeps what users write from being read as the prompt's own markers. Not here: finding names (engine/text.py).

A template writes <|im_end|> to end a turn; a user, or a page that a tool fetched, may write the same letters. Names in
messages of `user` and `tool` get a noncharacter inside before rendering, and tokenising takes it out of what is text.
What the operator (`system`) and the model itself said stays as it is, and templates may look into it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.text import MARKS, Text

STRANGERS = ("user", "tool", "function")


def shielded(text: Text, messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The messages to render, and the mark for Text.encode()."""
    written = json.dumps(messages, ensure_ascii=False, default=str)
    # Where all are taken, somebody tries something: the marks of the first vanish from that text, nothing else happens.
    mark = next((mark for mark in MARKS if mark not in written), MARKS[0])
    return [_shielded(text, message, mark) for message in messages], mark


def _shielded(text: Text, message: Mapping[str, Any], mark: str) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") not in STRANGERS or not content:
        return dict(message)
    if isinstance(content, str):
        return {**message, "content": text.shield(content, mark)}
    if not isinstance(content, list):
        return dict(message)
    parts = [
        {**part, "text": text.shield(part["text"], mark)}
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else part
        for part in content
    ]
    return {**message, "content": parts}
