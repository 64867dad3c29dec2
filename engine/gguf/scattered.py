"""Experts that lie apart in a file, as one tensor each again: who reads a model need not know. Not here: laying out.

    blk.0.ffn_gate.0.weight … blk.0.ffn_gate.63.weight   →   blk.0.ffn_gate_exps.weight with 64 `parts`

Only files that `colibri relayout` wrote have them (engine/relayout).
"""

import re
from collections import defaultdict
from dataclasses import replace

from engine.errors import BadModelFile
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, TensorInfo

PREFIX = "colibri.relayout."  # of the keys that only such a file has
HEADER = PREFIX + "header"
EXPERT = re.compile(r"(blk\.\d{1,6}\.ffn_(?:gate|up|down))\.(\d{1,6})\.weight")


def is_scattered(gguf: GgufFile) -> bool:
    """Whether `colibri relayout` wrote this file."""
    return PREFIX + "version" in gguf.metadata


def gathered(gguf: GgufFile) -> GgufFile:
    """The file as if its experts lay in the usual tensors; BadModelFile when some are missing or unlike the others."""
    if not is_scattered(gguf):
        return gguf
    tensors: dict[str, TensorInfo] = {}
    found: dict[str, dict[int, TensorInfo]] = defaultdict(dict)
    for name, tensor in gguf.tensors.items():
        if match := EXPERT.fullmatch(name):
            found[match[1]][int(match[2])] = tensor
        else:
            tensors[name] = tensor
    for stem, experts in found.items():
        name = f"{stem}_exps.weight"
        if name in tensors:
            raise BadModelFile(f"the tensor {quoted(name)} is there whole and in parts; the file is damaged")
        tensors[name] = _joined(name, experts)
    return replace(gguf, tensors=tensors)


def _joined(name: str, experts: dict[int, TensorInfo]) -> TensorInfo:
    count = len(experts)
    if sorted(experts) != list(range(count)):
        raise BadModelFile(f"the experts of {quoted(name)} are not numbered from 0 to {count - 1}; some are missing")
    first = experts[0]
    for i in range(count):
        if (experts[i].dims, experts[i].type) != (first.dims, first.type) or len(first.dims) != 2:
            raise BadModelFile(f"expert {i} of {quoted(name)} is not a matrix like the others; the file is damaged")
    return TensorInfo(
        name, (*first.dims, count), first.type, first.offset, count * first.n_bytes, count * first.n_rows, first.k,
        tuple(experts[i].offset for i in range(count)),
    )  # fmt: skip
