"""How each pre-tokenizer name cuts text into pieces before merging: a table. Not here: the cutting (cuts.py).

The names are the values of `tokenizer.ggml.pre` that llama.cpp knows, the patterns what it cuts by; where its pattern
takes time with the square of the input, ours is another one with the same result (tests compare them on every name).
A step cuts every span left by the step before: its matches and the gaps between them are the new spans.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import UnsupportedModel
from engine.tokenizer.cuts import Step, digit_thirds, trailing_space


@dataclass(frozen=True, slots=True)
class Splitter:
    """`whole_first`: a piece that is a token already is taken without merging. `add_bos`: if the file is silent.
    `gaps_part`: a character that the vocabulary lacks keeps its neighbours from merging; else they are as if it were
    not there."""

    steps: tuple[str | Step, ...]
    whole_first: bool = False
    add_bos: bool = False
    gaps_part: bool = False


_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII_MARKS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# The same family's other scripts: U+0800 to the ideographs, but for white space, which llama.cpp hides from classes.
_EAST = r"[\u0800-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\u9fa5\uac00-\ud7ff]+"
# Cased letters of Unicode 11 or so, as one family of models was trained with.
_CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e"
    "\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f"
    "\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _words(digits: str, *, letters: str = r"\p{L}+", others: str = r"[^\s\p{L}\p{N}]", lead: str = _CONTRACTION) -> str:
    """The pattern of GPT-4's family: contractions, a word with one mark before it, `digits`, marks, white space."""
    return rf"{lead}|[^\r\n\p{{L}}\p{{N}}]?{letters}|{digits}| ?{others}+[\r\n]*|{_SPACE}"


def _cased_words(digits: str, upper: str, lower: str, contraction: str = f"{_CONTRACTION}?") -> str:
    """The pattern of GPT-4o's family: words end where small letters are followed by capitals."""
    word = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{word}[{upper}]*[{lower}]+{contraction}|{word}[{upper}]+[{lower}]*{contraction}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}"
    )


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
# Single digits first, then the above, in one pass: white space before a digit counts as the end of a span.
_GPT2_DIGITS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])"
_LINES = r"[^\n]+|[\n]+"
_LLAMA3 = _words(r"\p{N}{1,3}")
_QWEN2 = _words(r"\p{N}")
_MARKED = rf"{_ASCII_MARKS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACE}"
_NO_MARKS = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# White space in powers of two, for a vocabulary with tokens of such lengths.
_HALVES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s"
_GPT4O = _cased_words(r"\p{N}{1,3}", r"\p{L!a-z}", r"\p{L!A-Z}")
_DEEPSEEK3 = (r"\p{N}{1,3}", _CJK, _MARKED)

_GPT2_SPLIT = Splitter((_GPT2,))
_GPT2_SPLIT_DIGITS = Splitter((_GPT2_DIGITS,))
_LLAMA3_SPLIT = Splitter((_LLAMA3,))
_LLAMA3_WHOLE = Splitter((_LLAMA3,), whole_first=True, add_bos=True)
_QWEN2_SPLIT = Splitter((_QWEN2,))
_GPT4O_SPLIT = Splitter((_GPT4O,))
_DEEPSEEK3_SPLIT = Splitter(_DEEPSEEK3)
_BLOOM_SPLIT = Splitter((_NO_MARKS,))
_BAILING_SPLIT = Splitter(
    (r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
     r"|\s*[\r\n]|\s+(?!\S)|\s+",)
)  # fmt: skip

_FAMILIES: tuple[tuple[str, Splitter], ...] = (
    ("gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4", _GPT2_SPLIT),
    ("jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling", _GPT2_SPLIT),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", _GPT2_SPLIT_DIGITS),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", _LLAMA3_WHOLE),
    ("dbrx smaug-bpe chatglm-bpe", _LLAMA3_SPLIT),
    ("glm4 glm5", Splitter((_LLAMA3,), whole_first=True)),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", _QWEN2_SPLIT),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _GPT4O_SPLIT),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK3_SPLIT),
    ("bloom poro-chat gpt3-finnish", _BLOOM_SPLIT),
    ("bailingmoe bailingmoe2 llada-moe", _BAILING_SPLIT),
)
SPLITTERS: Mapping[str, Splitter] = {name: splitter for names, splitter in _FAMILIES for name in names.split()} | {
    "default": Splitter((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    # Of the published vocabularies that lack some of ASCII, SmolLM2's own tokenizer closes the gap; for Falcon, which
    # lacks 18, the reference is llama.cpp, which never does.
    "falcon": Splitter((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"), gaps_part=True),
    "viking": Splitter((_NO_MARKS, r"\p{N}")),
    "tekken": Splitter(
        (_cased_words(r"\p{N}", r"\p{L!a-z}", r"\p{L!A-Z}", contraction=""),), whole_first=True, add_bos=True
    ),
    "granite-embed-multi-97m": Splitter(
        (_cased_words(r"\p{N}{1,3}", r"\p{L!a-z}\p{M}", r"\p{L!A-Z}\p{M}"),), whole_first=True
    ),
    "superbpe": Splitter((r"\p{N}+", digit_thirds)),
    "deepseek-llm": Splitter(
        (r"[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
         trailing_space, _EAST, r"\p{N}+")
    ),
    "deepseek-coder": Splitter(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST, r"\p{N}")
    ),
    "qwen35": Splitter((_words(r"\p{N}", letters=r"[\p{L}\p{M}]+", others=r"[^\s\p{L}\p{M}\p{N}]"),)),
    "seed-coder": Splitter(
        (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACE}",)
    ),
    "exaone-moe": Splitter(
        (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}(?:[\p{{L}}\p{{M}}]+| \p{{L}})*+|\p{{N}}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)
    ),
    "ufakzeka": Splitter((rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",)),
    "spark2_5": Splitter(
        (r"\p{N}{1,3}", _CJK, _MARKED.replace(rf"[\r\n]*|{_SPACE}", r"|[\r\n]|\s+(?!\S)|\s+"), r"\p{N}")
    ),
    "jais-2": Splitter((_LLAMA3.replace(r"\s+(?!\S)|\s+", _HALVES),)),
    "minicpm5": Splitter((r"\p{N}{1,3}", _words(r"\p{N}+")), whole_first=True),
    "laguna": Splitter((_LINES, _QWEN2)),
    "chameleon": Splitter(
        (r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", _GPT2),
        add_bos=True,
    ),
}  # fmt: skip


LINES = Splitter((_LINES,))
"""Gemma 4's way, whose model kind says so itself: whole lines."""


def splitter(name: object) -> Splitter:
    """The splitter of a `tokenizer.ggml.pre` value; UnsupportedModel names it and the known ones. Never a guess:
    a near miss still answers, only worse, and nobody sees why."""
    found = SPLITTERS.get(name) if isinstance(name, str) else None
    if found is None:
        seen = "missing" if name is None else repr(name)[:60]
        raise UnsupportedModel(
            f"the pre-tokenizer (tokenizer.ggml.pre) is {seen}; this version knows {', '.join(sorted(SPLITTERS))}"
        )
    return found
