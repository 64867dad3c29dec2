"""Which tokens may come next, so that an answer fits a schema, a grammar, an expression. Not here: choosing one.

    text = json_schema({...}) | regex("[0-9]+") | choice(["a", "b"]) | lark("start: ...")     what a request carries
    check(text)                                      InvalidParameter for one that cannot be kept to, before any work
    rule = Grammars(vocab, encode).start(text)
    rule.fill() before a token is chosen: rule.mask; rule.accept(token) after it; rule.is_complete: nothing may follow

The package llguidance does it: 20 to 400 us for a mask. A keyword of JSON Schema that it does not keep to is refused;
one that JSON Schema does not know says nothing. Answers have no white space between JSON's marks: a model that likes
spaces could write them until its limit.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.circles import endless
from engine.errors import EngineFailed, InvalidParameter
from engine.kernels.regions import address_of
from engine.tokenizer.vocab import Vocab

MOST_GRAMMAR = 1 << 20  # characters; compiling costs far more than reading
MOST_LOOKS = 200  # parts of a wrong schema that are compiled to find the one to blame
MOST_FORCED = 4096  # bytes without a choice; a circle of required parts forces without end, until the package gives up
# Where a schema holds schemas: by name, in a list, alone.
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_IN_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
_ALONE = ("items", "additionalProperties", "additionalItems")


def json_schema(schema: object) -> str:
    """The grammar of JSON texts that fit a JSON Schema (an object or a bool)."""
    from llguidance import LLMatcher

    if isinstance(schema, bool):  # the package takes these only inside others
        schema = {} if schema else {"enum": []}
    if isinstance(schema, Mapping):  # by this word a schema could tell the package to pass over what it does not know
        schema = {word: held for word, held in schema.items() if word != "x-guidance"}
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})


def regex(pattern: str) -> str:
    """The grammar of texts that match a regular expression from end to end."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_regex(pattern)


def lark(rules: str) -> str:
    """A grammar in llguidance's form of Lark."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(rules)


def choice(texts: Sequence[str]) -> str:
    """The grammar of a few given texts."""
    return lark("start: " + " | ".join(json.dumps(text) for text in texts))


def check(grammar: str) -> str:
    """Empty for a grammar that can be kept to, else what is wrong with it in one line."""
    from llguidance import LLMatcher

    if len(grammar) > MOST_GRAMMAR:
        return f"it has {len(grammar):,} characters; {MOST_GRAMMAR:,} are the most"
    is_wrong, said = LLMatcher.validate_grammar_with_warnings(grammar)
    return " ".join(said[0].split())[:300] if is_wrong else _fault_at_start(grammar)


def _fault_at_start(grammar: str) -> str:
    """What shows only when a text is begun, over bytes instead of a model's tokens: rules that go round in a circle."""
    from llguidance import LLMatcher

    matcher = LLMatcher(_bytes(), grammar, log_level=0)
    mask = np.zeros((_bytes().vocab_size + 31) // 32, np.uint32)
    matcher.unsafe_compute_mask_ptr(address_of(mask), mask.nbytes)
    forced = [] if matcher.is_error() else matcher.compute_ff_tokens()
    if len(forced) > MOST_FORCED:
        matcher.consume_token(forced[0])
    return "no text fits it, or none that ends: its parts refer to each other in a circle" if matcher.is_error() else ""


@cache
def _bytes() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


def check_schema(schema: object) -> tuple[str, str]:
    """As check(), for a JSON Schema: what is wrong and the path of the smallest part that has it ("" for the whole)."""
    wrong = _fault(schema)
    if not wrong:
        return _circle(schema)
    path: list[str] = []
    here, left = schema, MOST_LOOKS
    found = bool(wrong)
    while found:
        found = False
        for name, part in _parts(here):
            left -= 1
            if left < 0:
                break
            if _fault(_with_definitions(part, schema)) == wrong:
                here, found = part, True
                path.append(name)
                break
    return wrong, ".".join(path)


def _fault(schema: object) -> str:
    try:
        return check(json_schema(schema))
    except (ValueError, RecursionError) as error:  # 1e999, half a surrogate pair, more than 127 levels
        return f"it cannot be read as JSON: {str(error).partition(' at line ')[0]}"


def _circle(schema: object) -> tuple[str, str]:
    """A part that needs itself, where the start of a text does not show it; the innermost of the first."""
    wrong = endless(schema)
    found: tuple[str, ...] = ()
    left: list[tuple[tuple[str, ...], object]] = [((), schema)] if wrong else []
    while left:
        path, here = left.pop()
        if id(here) in wrong:
            found, left = path, []
        left += [((*path, name), part) for name, part in reversed(list(_parts(here)))]
    return ("no text that ends fits it: it refers to itself in a circle" if wrong else "", ".".join(found))


def _parts(schema: object) -> Iterator[tuple[str, object]]:
    """The schemas that stand in one, with where."""
    if not isinstance(schema, Mapping):
        return
    for word, held in schema.items():
        if word in _BY_NAME and isinstance(held, Mapping):
            yield from ((f"{word}.{name}", part) for name, part in held.items())
        elif word in _IN_LIST and isinstance(held, list):
            yield from ((f"{word}.{i}", part) for i, part in enumerate(held))
        elif word in _ALONE and isinstance(held, Mapping):
            yield word, held


def _with_definitions(part: object, whole: object) -> object:
    """A part that can be looked at by itself."""
    if not isinstance(part, Mapping) or not isinstance(whole, Mapping):
        return part
    return {**{word: whole[word] for word in ("$defs", "definitions") if word in whole}, **part}


class Grammars:
    """Grammars over one model's vocabulary; `encode` gives the ids of plain text. What they need of both is made at the
    first use (0.3 s for 49k tokens)."""

    def __init__(self, vocab: Vocab, encode: Callable[[str], list[int]]) -> None:
        self._vocab, self._encode = vocab, encode
        self._tokenizer: Any = None
        self._making = threading.Lock()

    def start(self, grammar: str) -> "Rule":
        """A rule for one answer from its first token on; InvalidParameter for a grammar that cannot be kept to."""
        from llguidance import LLMatcher

        if wrong := check(grammar):
            raise InvalidParameter(f"the grammar cannot be kept to: {wrong}", param="grammar")
        matcher = LLMatcher(self._tokens(), grammar, log_level=0)
        if matcher.is_error():
            said = " ".join(matcher.get_error().split())[:300]
            raise InvalidParameter(f"the grammar cannot be kept to: {said}", param="grammar")
        return Rule(matcher, self._vocab.n_vocab)

    def _tokens(self) -> Any:
        with self._making:
            if self._tokenizer is None:
                from llguidance import LLTokenizer, TokenizerWrapper

                wrapped = _Wrapped(self._vocab, self._encode)
                self._tokenizer = LLTokenizer(
                    TokenizerWrapper(wrapped), n_vocab=self._vocab.n_vocab, eos_token=sorted(self._vocab.eog_ids)
                )
            return self._tokenizer


class _Wrapped:
    """A vocabulary as llguidance asks for it."""

    def __init__(self, vocab: Vocab, encode: Callable[[str], list[int]]) -> None:
        if not vocab.eog_ids:
            raise InvalidParameter("this model's file names no token that ends an answer, which a grammar needs")
        self.eos_token_id, self.bos_token_id = min(vocab.eog_ids), vocab.bos_id
        self.tokens = [vocab.bytes_of(i) for i in range(vocab.n_vocab)]
        # A special token is none of a text's bytes: only a grammar that names it allows it.
        self.special_token_ids = [i for i in range(vocab.n_vocab) if vocab.is_special(i) or i in vocab.eog_ids]
        self._encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


class Rule:
    """One answer's grammar and how far it is kept to. `mask`: a bit for each token, the lowest of word 0 first.

    `forced`: the tokens that must come now, as their text is commonly cut into tokens; while there are any, the mask
    lets no other pass, so that whoever takes them unasked and whoever asks get the same ids.
    """

    def __init__(self, matcher: Any, n_vocab: int) -> None:
        self._matcher = matcher
        self.mask: NDArray[np.uint32] = np.zeros((n_vocab + 31) // 32, np.uint32)
        self.address = address_of(self.mask)
        self.failure: EngineFailed | None = None
        self.forced: deque[int] = deque(matcher.compute_ff_tokens())

    def fill(self) -> None:
        """Set the bits of the tokens that may come now; after a `failure`, all of them: the answer is thrown away."""
        if self.forced:
            self.mask[:] = 0
            self.mask[self.forced[0] // 32] = 1 << self.forced[0] % 32
        elif self.failure is None:
            self._matcher.unsafe_compute_mask_ptr(self.address, self.mask.nbytes)
            if self._matcher.is_error() or not self.mask.any():
                self._fail()
        if self.failure is not None:
            self.mask[:] = 0xFFFFFFFF

    def accept(self, token: int) -> None:
        """`token` was chosen."""
        if self.failure is not None:
            return
        if self.forced and self.forced.popleft() != token:
            self.forced.clear()
        if not self._matcher.consume_token(token):
            self._fail()
        elif not self.forced and not self._matcher.is_stopped():
            self.forced.extend(self._matcher.compute_ff_tokens())

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow, or the answer is lost."""
        return self.failure is not None or bool(self._matcher.is_stopped())

    def _fail(self) -> None:
        said = " ".join(self._matcher.get_error().partition("<state>")[0].split())[:200]
        said = "no token may follow" if said in ("", "NoExtensionBias") else said
        self.forced.clear()
        self.failure = EngineFailed(f"the grammar became too hard to keep to, so there is no answer: {said}")
