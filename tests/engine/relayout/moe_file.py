"""A small file with experts whose bytes are noise: who moves bytes must not care what they are. Not here: tests."""

import random
from pathlib import Path

from engine.gguf.reader import Value
from engine.gguf.writer import Tensor, write_gguf
from engine.quants.registry import TYPES


def moe_file(
    path: Path, *, layers: tuple[int, ...] = (0, 1, 3), n_experts: int = 5, n_used: int = 2, **more: Value
) -> Path:
    """Layers of gate and up in Q4_K and down in Q6_K, with dense tensors of odd sizes between them."""
    rng = random.Random(str((layers, n_experts)))
    metadata: dict[str, Value] = {
        "general.architecture": "qwen3moe", "qwen3moe.expert_count": n_experts, "qwen3moe.expert_used_count": n_used,
        "some.words": ["a", "\udc80b", ""], "some.bytes": [1, 2, 3], "some.number": 7, **more,
    }  # fmt: skip
    tensors: list[Tensor] = []

    def add(name: str, dims: tuple[int, ...], type_name: str) -> None:
        n_rows = 1
        for dim in dims[1:]:
            n_rows *= dim
        tensors.append((name, dims, type_name, rng.randbytes(n_rows * TYPES[type_name].row_bytes(dims[0]))))

    add("token_embd.weight", (256, 40), "Q8_0")
    for i in layers:
        add(f"blk.{i}.attn_norm.weight", (3,), "F32")
        add(f"blk.{i}.ffn_down_exps.weight", (256, 512, n_experts), "Q6_K")
        add(f"blk.{i}.ffn_gate_inp.weight", (256, n_experts), "F32")
        add(f"blk.{i}.ffn_up_exps.weight", (512, 256, n_experts), "Q4_K")
        add(f"blk.{i}.attn_q.weight", (32, 5), "Q4_0")
        add(f"blk.{i}.ffn_gate_exps.weight", (512, 256, n_experts), "Q4_K")
    add("output_norm.weight", (5,), "F32")
    return write_gguf(path, metadata, tensors, {"some.bytes": "array[uint8]", "some.number": "uint16"})
