"""Texts that tokenizers disagree about, and vocabularies that show where a text was cut. Not here: the comparison."""

import json
import random
from collections.abc import Mapping
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.tiny import byte_alphabet

SPACE = "\u2581"

ATOMS = (
    # words and capitals
    "the", " quick", " Brown", "fox", " HTTPServer", " parseXMLNow", " ÉCOLE", "naïve", " Straße", "ǅungla", " ʻokina",
    " µ", " Ωmega", "ﬁn", "𝐁old", " Ꭰꭰ", "Ა", "ա", "𐐀𐐨",
    # contractions, in both cases and with other apostrophes
    "'s", "'S", "'ll", "'LL", "'Ve", "'re", "'d", "'t", "'x", "’s", "''", " 'm",
    # digits
    "1", "12", "123", "1234", "12345", "1234567", " 7", " 2026", "3.14", "1,000,000", "0x1F", "a1", "1b",
    "٣٤٥", "²", "½", "Ⅷ", "४२", "９９９９", "_12", "12_", "5é", "1234你",
    # white space
    " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", "  \n  ", "\x0b", "\xa0", "\u3000",
    "\u2028", "\x85", " " * 17, "\u200b", "\x1c", "\x00",
    # marks
    "!", "?!", "...", " ...", ".\n", "/*", "*/\n", "//", " $", "$5", "+=", "<=>", " ~", "^|`", "(a)", "[x]", "{",
    "}\n\n", "#tag", "@me", "«", "—", " —", "“", "…", "。", "，", "、", "：", "~a", "-b", "_", "__init__", "\\n",
    "&amp;", "«é", "€", "™", "|",
    # scripts, joined and combining characters
    "你好", "世界", "日本語", "カタカナ", "ひらがな", "한국어", "ㄱㄴ", "ㄅㄆ", "ไทย", "हिन्दी", " नमस्ते",
    "العربية", " עברית", "é", " ö̈", "𠀀", "〇",
    "😀", "👨\u200d👩\u200d👧", "🇫🇷", "❤️", "a\u0301b", "\u0301", "ﾊﾟ", "가", "ᄀ", "မြန်", "ភាសា",
    # what single pre-tokenizers look for
    "<sentinel:12>", "IMGIMGABCZ", "IMGIMGZ", "\ufeff", "\U000e0001", "\ue000",
)  # fmt: skip

# Tokens that no merge leads to: some pre-tokenizers take a piece that is a token before merging, others never meet it.
UNMERGED = ("zqj", " zqj", "Zqjw")

EVERYDAY = (
    "What is the capital of France?",
    "The quick brown fox jumps over the lazy dog. It's 5 o'clock; they'll, we've, I'm, you're, he'd, don't.",
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n\n\nprint(fib(10))\n",
    'for (int i = 0; i < n; ++i) {\n\tprintf("%d\\n", a[i]);\t// tabs\n}\r\n',
    "3.14159265358979 1234567890 0x7f 1e-9 10,000,000 2026-10-30 12:34:56",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "😀 😃 😄 👨‍👩‍👧‍👦 🇫🇷🇩🇪 ❤️‍🔥 👍🏽",
    "你好，世界！今天天气怎么样？我们去公园吧。",
    "日本語の文章です。カタカナ、ひらがな、漢字。",
    "안녕하세요 세계. 오늘은 날씨가 좋네요.",
    "Привет, мир! Как дела?   Ёлка.",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "नमस्ते दुनिया, आप कैसे हैं? १२३",
    "Zażółć gęślą jaźń; Fußgängerübergänge; ¿Qué tal, señor? naïve café",
    "a\n\nb\n\n\nc\r\n\r\nd\t\te   f    g     h\n \n  \n",
    "    leading and trailing    ",
    "HELLO World hELLO camelCase PascalCase snake_case kebab-case SCREAMING_CASE",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2, 3], "x": null}}',
    "$E = mc^2$, \\frac{a}{b} ≤ ∑ᵢ xᵢ² ≈ ∫₀^∞ e^{-x} dx → ∞",
    "https://example.org/a/b?c=d&e=%20f#g mailto:a.b+c@example.org C:\\Windows\\System32",
    "!!! ??? ... --- === ___ *** ### ~~~ ``` ''' \"\"\" ((())) [[]] {{}} <<>> ;;; ::: ,,,",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "x",
    " ",
    "\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] todo\n- [x] done\n1. one\n2. two\n",
    "The rain in Spain stays mainly in the plain. " * 200,
    "".join(chr(c) for c in range(0x20, 0x250)),
)


def prompts(n: int, seed: int, atoms: tuple[str, ...] = ATOMS) -> list[str]:
    """`n` texts of one to fourteen atoms; the same ones for the same seed."""
    rng = random.Random(seed)
    return ["".join(rng.choices(atoms, k=rng.randint(1, 14))) for _ in range(n)]


@cache
def telling_vocabulary(n_vocab: int, seed: int = 1) -> Mapping[str, object]:
    """Metadata of a byte-level BPE trained on uncut texts: its tokens reach over every border that a pre-tokenizer may
    draw, so that a border drawn elsewhere gives other ids."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab, initial_alphabet=list(byte_alphabet().values()), show_progress=False
    )
    rng = random.Random(seed)
    pairs = ["".join(rng.choices(ATOMS, k=2)) for _ in range(20_000)]
    trained.train_from_iterator(pairs, trainer)
    state = json.loads(trained.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    tokens += [token.replace(" ", byte_alphabet()[0x20]) for token in UNMERGED]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": [" ".join(m) for m in state["merges"]],
    }


@cache
def telling_spm_vocabulary(n_vocab: int, *, across_words: bool, scores: str = "trained") -> Mapping[str, object]:
    """Metadata of a SentencePiece BPE trained on ATOMS, with 256 bytes and one token of each special kind. Its tokens
    reach over words or not; its scores are those of training, alike for forty at a time, or mixed up."""
    rng = random.Random(4)
    texts = ["".join(rng.choices(ATOMS, k=3)).replace(" ", SPACE) for _ in range(12_000)]
    if not across_words:
        texts = [word for text in texts for word in text.replace(SPACE, "\n" + SPACE).split("\n")]
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=n_vocab, show_progress=False))
    state = json.loads(trained.to_str())["model"]
    merged = list(dict.fromkeys("".join(merge) for merge in state["merges"]))
    if not across_words:
        merged = [token for token in merged if SPACE not in token.lstrip(SPACE)]
    # Some characters are left to their bytes.
    characters = [
        c for c in sorted({c for text in texts for c in text}) if c == SPACE or c.isascii() or rng.random() < 0.6
    ]
    # llama.cpp ends a token at its first zero byte, and stops at two tokens alike.
    plain = [token for token in dict.fromkeys([*merged, *characters]) if "\0" not in token]
    ranks = [float(-i) for i in range(len(plain))]
    if scores == "ties":
        ranks = [rank // 40 for rank in ranks]
    elif scores == "mixed":
        rng.shuffle(ranks)
    named = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "<|user|>", "<tool>", "<tool><b>", "[7]"]
    return {
        "tokenizer.ggml.tokens": [*named, *plain],
        "tokenizer.ggml.scores": [0.0] * len(named) + ranks,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [3, 4, 4, 5] + [1] * len(plain),
    }
