"""Tokens that are found in a text by their name, before anything is merged. Not here: what is done with the rest.

Control tokens and unknown ones are seen only when asked for; user-defined ones always, as they are text.
"""

import re
from collections.abc import Iterator, Sequence

from engine.tokenizer.vocab import Kind, Vocab

_SPACE = " \t\n\v\f\r"


class Names:
    """The named tokens of one vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        found = [
            (token, i, vocab.kinds[i] == Kind.USER_DEFINED)
            for i in vocab.named
            if (token := vocab.tokens[i]) and is_text(token)
        ]
        self._names = sorted(found, key=lambda name: -len(name[0].encode()))  # longest first, in bytes
        self._firsts = {name[0] for name, _, is_text in found if not is_text}
        self._overlap = _overlap([name for name, *_ in self._names])
        self._after, self._before = vocab.swallows_after, vocab.swallows_before

    def shield(self, text: str, mark: str) -> str:
        """The text with `mark` inside each name that is seen only when asked for; those of one character stay."""
        if not self._firsts & set(text):
            return text
        names = [name for name, _, is_text in self._names if not is_text and len(name) > 1]
        while present := [name for name in names if name in text]:  # breaking one may leave another that overlapped it
            for name in present:
                text = text.replace(name, name[0] + mark + name[1:])
        return text

    def parts(self, text: str, parse_special: bool, mark: str = "") -> list[str | int]:
        """Text and the tokens in it, in order; longer names are looked for first, in the whole text. What is text loses
        the `mark`s of shield()."""
        found = self._found(text, parse_special)
        return [part.replace(mark, "") if isinstance(part, str) else part for part in found] if mark else found

    def _found(self, text: str, parse_special: bool) -> list[str | int]:
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
        if not self._after and not self._before:
            return parts
        out: list[str | int] = []
        for at, part in enumerate(parts):
            if isinstance(part, str):
                if out and out[-1] in self._after:
                    part = part.lstrip(_SPACE)
                if parts[at + 1 : at + 2] and parts[at + 1] in self._before:
                    part = part.rstrip(_SPACE)
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
