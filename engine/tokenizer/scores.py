"""`tokenizer.ggml.scores` of a file, checked: one number for each token. Not here: what they decide."""

import math
from array import array

from engine.errors import BadModelFile

KEY = "tokenizer.ggml.scores"


def checked_scores(value: object, kind: str | None, n_vocab: int) -> list[float]:
    """The scores of a file; BadModelFile unless they are one number for each token."""
    if value is None:
        raise BadModelFile(f"{KEY} is missing; a vocabulary of this kind is nothing without it, convert it again")
    if not isinstance(value, list) or kind not in ("array[float32]", "array[int32]"):
        raise BadModelFile(f"{KEY} is of type {kind}, not a list of numbers; the file was converted wrongly")
    if len(value) != n_vocab:
        raise BadModelFile(f"{KEY} has {len(value)} entries for {n_vocab} tokens; the file is damaged")
    if any(map(math.isnan, value)):
        raise BadModelFile(f"{KEY} holds a value that is no number; the file is damaged")
    return value if kind == "array[float32]" else array("f", value).tolist()
