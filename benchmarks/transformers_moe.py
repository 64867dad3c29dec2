"""transformers' own logits of the tiny models with experts, in float32, for the tests to compare with.

    python -m benchmarks.transformers_moe        writes tests/vectors/qwen3moe.json

Needs torch and transformers, which nothing else here does: the tests read what this has written. The models are random,
made by numpy from a seed (tests/tiny_moe.py), so the file keeps their SHA-256 instead of their weights.
"""

import base64
import datetime
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from engine.gguf.reader import read_gguf
from tests.blocks import F32
from tests.tiny import tensor_f32
from tests.tiny_moe import tiny_qwen3moe

VECTORS = Path(__file__).parent.parent / "tests" / "vectors" / "qwen3moe.json"
N_IDS = 24
# The options of tests.tiny_moe.tiny_qwen3moe.
MODELS: dict[str, dict[str, Any]] = {
    "some of a few": {"n_experts": 13, "n_used": 4},
    "a few of many, tied": {"n_experts": 40, "n_used": 8, "tied": True, "n_kv_heads": 1, "head_dim": 64, "seed": 1},
    "one": {"n_experts": 6, "n_used": 1, "n_layers": 3, "n_heads": 2, "seed": 2},
    "all": {"n_experts": 3, "n_used": 3, "n_embd": 96, "n_ff_exp": 40, "seed": 3},
}
_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate",
}  # fmt: skip


def ids_of(n_vocab: int = 320) -> list[int]:
    return [int(i) for i in np.random.default_rng(7).integers(0, n_vocab, N_IDS)]


def stored() -> dict[str, Any]:
    """{"provenance", "models": {name: {"sha256", "logits"}}} with logits float32 (N_IDS, n_vocab)."""
    kept = json.loads(VECTORS.read_text())
    for model in kept["models"].values():
        flat = np.frombuffer(base64.b64decode(model["logits"]), np.float32)
        model["logits"] = flat.reshape(N_IDS, -1)
    return dict(kept)


def _weights(path: Path) -> dict[str, F32]:
    """The file's tensors under the names that transformers gives them."""
    gguf = read_gguf(path)
    found = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if "output.weight" in gguf.tensors:
        found["lm_head.weight"] = "output.weight"
    n_layers = int(gguf.metadata["qwen3moe.block_count"])  # type: ignore[call-overload]
    for i in range(n_layers):
        found |= {f"model.layers.{i}.{theirs}.weight": f"blk.{i}.{ours}.weight" for ours, theirs in _NAMES.items()}
    weights = {theirs: tensor_f32(gguf, ours) for theirs, ours in found.items()}
    for i in range(n_layers):
        gate, up, down = (tensor_f32(gguf, f"blk.{i}.ffn_{part}_exps.weight") for part in ("gate", "up", "down"))
        for e in range(len(gate)):
            at = f"model.layers.{i}.mlp.experts.{e}"
            weights |= {f"{at}.gate_proj.weight": gate[e], f"{at}.up_proj.weight": up[e],
                        f"{at}.down_proj.weight": down[e]}  # fmt: skip
    return weights


def _logits(path: Path, folder: Path) -> F32:
    """A forward by Qwen3MoeForCausalLM, loaded from a checkpoint in its own format."""
    import torch
    from safetensors.numpy import save_file
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    weights = _weights(path)
    m = read_gguf(path).metadata

    def key(name: str) -> Any:
        return m[f"qwen3moe.{name}"]

    config = Qwen3MoeConfig(
        vocab_size=len(weights["model.embed_tokens.weight"]), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"), num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"), num_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), moe_intermediate_size=key("expert_feed_forward_length"),
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6, attention_bias=False,
        max_position_embeddings=1024, rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        tie_word_embeddings="lm_head.weight" not in weights,
    )  # fmt: skip
    folder.mkdir()
    config.save_pretrained(folder)
    whole = {name: np.ascontiguousarray(w) for name, w in weights.items()}
    save_file(whole, folder / "model.safetensors", {"format": "pt"})
    model, report = Qwen3MoeForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise SystemExit(f"the checkpoint does not fit: {report}")
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids_of()])).logits[0].numpy(), np.float32)


def main() -> None:
    import torch
    import transformers

    models = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, options) in enumerate(MODELS.items()):
            path = tiny_qwen3moe(Path(folder) / f"{i}.gguf", quant="F32", **options)
            logits = _logits(path, Path(folder) / str(i))
            sha = hashlib.sha256(path.read_bytes()).hexdigest()
            models[name] = {"sha256": sha, "logits": base64.b64encode(logits.tobytes()).decode()}
            print(f"{name}: logits {logits.min():.3f} to {logits.max():.3f}")
    made = {
        "by": "python -m benchmarks.transformers_moe", "on": datetime.date.today().isoformat(),
        "transformers": transformers.__version__, "torch": torch.__version__, "dtype": "float32",
    }  # fmt: skip
    VECTORS.write_text(json.dumps({"provenance": made, "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    main()
