"""Tokens that are found in a text by their name, before anything is merged. Not here: what is done with the rest.

Control tokens and unknown ones are seen only when asked for; user-defined ones always, as they are text.
"""

import re
from collections.abc import Iterator, Sequence

from engine.tokenizer.vocab import NAMED, Kind, Vocab

_SPACE = " \t\n\v\f\r"


class Names:
    """The named tokens of one vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        found = [
            (token, i, vocab.kinds[i] == Kind.USER_DEFINED)
            for i, token in enumerate(vocab.tokens)
            if vocab.kinds[i] in NAMED and token and is_text(token)
        ]
        self._names = sorted(found, key=lambda name: -len(name[0].encode()))  # longest first, in bytes
        self._overlap = _overlap([name for name, *_ in self._names])
        self._swallows = vocab.swallows_space

    def parts(self, text: str, parse_special: bool) -> list[str | int]:
        """Text and the tokens in it, in order; longer names are looked for first, in the whole text."""
        present = {name: i for name, i, is_text in self._names if (parse_special or is_text) and name in text}
        if not present:
            return [text] if text else []
        if not self._overlap:  # then one pass finds the same, however many names a hostile text holds
            split = re.split(f"({'|'.join(map(re.escape, present))})", text)
            return self._stripped([present[part] if at % 2 else part for at, part in enumerate(split) if part])
        parts: list[str | int] = [text]
        for name, token_id in present.items():
            parts = [new for part in parts for new in _around(part, name, token_id)]
        return self._stripped(parts)

    def _stripped(self, parts: list[str | int]) -> list[str | int]:
        """Without the white space that some models' markers take with them."""
        if not self._swallows:
            return parts
        out: list[str | int] = []
        for part in parts:
            if isinstance(part, str) and out and out[-1] in self._swallows:
                part = part.lstrip(_SPACE)
            if part != "":
                out.append(part)
        return out


def is_text(token: str) -> bool:
    """False for a token with bytes that are not UTF-8 (surrogate escapes): it can be written but never read."""
    if token.isascii():
        return True
    try:
        token.encode()
    except UnicodeEncodeError:
        return False
    return True


def _overlap(names: Sequence[str]) -> bool:
    """Whether the end of one name is the beginning of another, so that the order of looking matters."""
    begins = {name[:n] for name in names for n in range(1, len(name))}
    return any(name[-n:] in begins for name in names for n in range(1, len(name)))


def _around(part: str | int, name: str, token_id: int) -> Iterator[str | int]:
    if isinstance(part, int) or name not in part:
        yield part
        return
    for i, text in enumerate(part.split(name)):
        if i:
            yield token_id
        if text:
            yield text
