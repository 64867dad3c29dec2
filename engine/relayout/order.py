"""Which bytes of a model file go where in a copy for streaming experts. Not here: moving them (copy.py).

    as it came    blk.0.ffn_gate_exps [all experts]  …  blk.0.ffn_up_exps [all]  …  blk.0.ffn_down_exps [all]  …
    the copy      everything else, as it was ordered
                  blk.7.ffn_gate.12  blk.7.ffn_up.12  blk.7.ffn_down.12      layer 7 is the hottest, 12 its hottest
                  blk.7.ffn_gate.3   blk.7.ffn_up.3   blk.7.ffn_down.3
                  …

One expert is one stretch, each tensor on a multiple of 4096: one direct read in place of three that start anywhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import BadModelFile, UnsupportedModel, UsageError
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, TensorInfo
from engine.gguf.scattered import is_scattered
from engine.weights.heat import Heat

PARTS = ("gate", "up", "down")
ALIGNMENT = 4096  # what a direct read needs on any disk
EXPERTS = re.compile(r"blk\.(\d{1,6})\.ffn_(gate|up|down)_exps\.weight")


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the copy: `n_bytes` from `start` on of the tensor `source` of the file that is copied."""

    name: str
    dims: tuple[int, ...]
    source: TensorInfo
    start: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The three tensors of a layer's experts, in the order of PARTS."""

    layer: int
    tensors: tuple[TensorInfo, TensorInfo, TensorInfo]

    @property
    def n_experts(self) -> int:
        return self.tensors[0].dims[2]

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert, all three parts."""
        return sum(t.n_bytes for t in self.tensors) // self.n_experts

    def pieces(self, expert: int) -> list[Piece]:
        """Gate, up and down of one expert."""
        made = []
        for part, tensor in zip(PARTS, self.tensors, strict=True):
            n_bytes = tensor.n_bytes // self.n_experts
            name = f"blk.{self.layer}.ffn_{part}.{expert}.weight"
            made.append(Piece(name, tensor.dims[:2], tensor, expert * n_bytes, n_bytes))
        return made


def expert_layers(gguf: GgufFile) -> list[ExpertLayer]:
    """The layers that have experts, ascending; UnsupportedModel for a file without any, UsageError for a copy."""
    if is_scattered(gguf):
        raise UsageError(f"{quoted(gguf.path.name, 120)} was laid out anew before; turn it back with --back first")
    if len(gguf.parts) > 1:
        raise UsageError(
            f"{quoted(gguf.path.name, 120)} is one of {len(gguf.parts)} files; only a model in one is laid out"
        )
    found: dict[int, dict[str, TensorInfo]] = {}
    for name, tensor in gguf.tensors.items():
        if match := EXPERTS.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = tensor
    if not found:
        raise UnsupportedModel(f"{quoted(gguf.path.name, 120)} has no experts; there is nothing to lay out anew")
    layers = []
    for layer, parts in sorted(found.items()):
        if set(parts) != set(PARTS):
            raise BadModelFile(f"{quoted(gguf.path.name, 120)}: layer {layer} lacks one of gate, up and down experts")
        gate, up, down = (parts[part] for part in PARTS)
        layers.append(ExpertLayer(layer, (gate, up, down)))
    _check(gguf, layers)
    return layers


def n_used(gguf: GgufFile, layers: Sequence[ExpertLayer]) -> int:
    """Experts of a layer that one token goes through, as the file says."""
    key = f"{gguf.metadata.get('general.architecture')}.expert_used_count"
    value = gguf.metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= layers[0].n_experts:
        raise BadModelFile(
            f"{quoted(gguf.path.name, 120)}: {quoted(key)} is {quoted(str(value))}; 1 to {layers[0].n_experts} is"
            " expected"
        )
    return value


def _check(gguf: GgufFile, layers: Sequence[ExpertLayer]) -> None:
    n_experts = layers[0].tensors[0].dims[-1]
    for layer in layers:
        for tensor in layer.tensors:
            if len(tensor.dims) != 3 or tensor.dims[2] != n_experts:
                raise BadModelFile(
                    f"{quoted(gguf.path.name, 120)}: {quoted(tensor.name)} has dimensions {tensor.dims}; three are"
                    f" expected, the last of {n_experts} experts"
                )


def ordered(gguf: GgufFile, layers: Sequence[ExpertLayer], heat: Heat) -> list[Piece]:
    """Every tensor of the copy in the order of its bytes; equal heat keeps the file's order."""
    experts = {t.name for layer in layers for t in layer.tensors}
    by_offset = sorted(gguf.tensors.values(), key=lambda t: t.offset)
    pieces = [Piece(t.name, t.dims, t, 0, t.n_bytes) for t in by_offset if t.name not in experts]
    for i in sorted(range(len(layers)), key=lambda i: -sum(heat[i])):
        for expert in sorted(range(layers[i].n_experts), key=lambda e: -heat[i][e]):
            pieces += layers[i].pieces(expert)
    return pieces
