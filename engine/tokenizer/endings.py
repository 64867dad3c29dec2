"""Names of tokens that end an answer, or that files list as plain text although they are markers. Not here: ids.

The names are those that llama.cpp goes by, so that an answer ends where its answer ends; a file's own
eos/eot/eom keys are added by vocab.py.
"""

from collections.abc import Mapping
from functools import cache

ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
    "<|ifm|im_end|>", "<|plamo:eos|>",
})  # fmt: skip

# Fill-in-the-middle markers. A model that writes one of the last three rows has finished its answer. Of each row
# the first name that the file has counts.
_FILL = (
    ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
     "<|prefix|>", "<|plamo:fim_prefix|>"),
    ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
     "<|suffix|>", "<|plamo:fim_suffix|>"),
    ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
     "<|middle|>", "<|plamo:fim_middle|>"),
)  # fmt: skip
_FILL_ENDS = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>", "<|plamo:file_separator|>"),
)

# The harmony format's structure: part of the text that a client reads.
_HARMONY = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


@cache
def control_looking() -> frozenset[str]:
    """Every name this module knows."""
    return ENDS | _HARMONY | {name for row in (*_FILL, *_FILL_ENDS) for name in row}


def end_of_generation(found: Mapping[str, int]) -> set[int]:
    """The ids among `found` (known name -> id) after which there is no more text."""
    ends = {found[name] for name in ENDS if name in found}
    for row in _FILL_ENDS:
        first = next((name for name in row if name in found), None)
        if first is not None:
            ends.add(found[first])
    if _end_is_inner(found):
        ends.discard(found["<|end|>"])
    return ends - {found[name] for name in plain_anyway(found)}


def plain_anyway(found: Mapping[str, int]) -> frozenset[str]:
    """Names that are a text's tokens like any other: HTML's </s>, where answers end otherwise."""
    return frozenset({"</s>"} & found.keys()) if {"<|tool_response>", "<|plamo:eos|>"} & found.keys() else frozenset()


def shown_anyway(found: Mapping[str, int]) -> frozenset[str]:
    """Markers that are text of the answer, whatever the file calls them."""
    return _HARMONY | {"<|end|>"} if _end_is_inner(found) else _HARMONY


def _end_is_inner(found: Mapping[str, int]) -> bool:
    """Where <|return|> and <|call|> (or <|flush|> and <|calls|>) end an answer, <|end|> only ends a message in it."""
    called = "<|call|>" in found or "<|calls|>" in found
    return "<|end|>" in found and called and ("<|return|>" in found or "<|flush|>" in found)
