"""Texts that tokenizers disagree about, and a vocabulary that shows where a text was cut. Not here: the comparison."""

import random
from collections.abc import Mapping

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.tiny import byte_alphabet

ATOMS = (
    # words and capitals
    "the", " quick", " Brown", "fox", " HTTPServer", " parseXMLNow", " ÉCOLE", "naïve", " Straße", "ǅungla", " ʻokina",
    " µ", " Ωmega", "ﬁn", "𝐁old", " Ꭰꭰ", "Ა", "ա", "𐐀𐐨",
    # contractions, in both cases and with other apostrophes
    "'s", "'S", "'ll", "'LL", "'Ve", "'re", "'d", "'t", "'x", "’s", "''", " 'm",
    # digits
    "1", "12", "123", "1234", "12345", "1234567", " 7", " 2026", "3.14", "1,000,000", "0x1F", "a1", "1b", "٣٤٥", "²", "½",
    "Ⅷ", "४२", "９９９９", "_12", "12_", "5é", "1234你",
    # white space
    " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", "  \n  ", "\x0b", "\xa0", "\u3000", "\u2028", "\x85",
    " " * 17, "\u200b", "\x1c", "\x00",
    # marks
    "!", "?!", "...", " ...", ".\n", "/*", "*/\n", "//", " $", "$5", "+=", "<=>", " ~", "^|`", "(a)", "[x]", "{", "}\n\n", "#tag",
    "@me", "«", "—", " —", "“", "…", "。", "，", "、", "：", "~a", "-b", "_", "__init__", "\\n", "&amp;", "«é", "€", "™", "|",
    # scripts, joined and combining characters
    "你好", "世界", "日本語", "カタカナ", "ひらがな", "한국어", "ㄱㄴ", "ㄅㄆ", "ไทย", "हिन्दी", " नमस्ते", "العربية", " עברית", "é", " ö̈", "𠀀", "〇",
    "😀", "👨\u200d👩\u200d👧", "🇫🇷", "❤️", "a\u0301b", "\u0301", "ﾊﾟ", "가", "ᄀ", "မြန်", "ភាសា",
    # what single pre-tokenizers look for
    "<sentinel:12>", "IMGIMGABCZ", "IMGIMGZ", "\ufeff", "\U000e0001", "\ue000",
)  # fmt: skip


def prompts(n: int, seed: int, atoms: tuple[str, ...] = ATOMS) -> list[str]:
    """`n` texts of one to fourteen atoms; the same ones for the same seed."""
    rng = random.Random(seed)
    return ["".join(rng.choices(atoms, k=rng.randint(1, 14))) for _ in range(n)]


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
    state = __import__("json").loads(trained.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": [" ".join(m) for m in state["merges"]],
    }
