"""Exact float32 forward of a GGUF llama or qwen3moe model in plain numpy: what every engine's logits are judged by.

Weights are dequantised to float32 and multiplied as such: no activation is ever rounded to fewer bits. Sums that run
over a row alone (norms, softmax, rope angles) are float64. Slow and obvious on purpose; it shares no line with the
engine but the header reader.
Not here: other architectures, comparisons of two sets of logits (benchmarks/divergence.py).
"""

from collections.abc import Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from engine.gguf.reader import GgufFile, read_gguf
from tests.blocks import dequantise

F32 = NDArray[np.float32]


class Reference:
    """A model as float32 arrays of shape (rows, k); refuses by KeyError or ValueError what it cannot compute."""

    def __init__(self, path: str | PathLike[str]) -> None:
        gguf = read_gguf(path)
        self.gguf = gguf
        self.arch = str(gguf.metadata["general.architecture"])
        self.n_layers = self._int("block_count")
        self.n_heads = self._int("attention.head_count")
        self.n_kv_heads = self._int("attention.head_count_kv", self.n_heads)
        self.head_dim = self._int("attention.key_length", self._int("embedding_length") // self.n_heads)
        self.eps = self._float("attention.layer_norm_rms_epsilon")
        data = np.memmap(gguf.path, np.uint8, "r")
        self.weights = {
            name: dequantise(data[t.offset : t.offset + t.n_bytes].tobytes(), t.type.name, t.dims[::-1])
            for name, t in gguf.tensors.items()
        }
        embed = self.weights["token_embd.weight"]
        self.head = self.weights.get("output.weight", embed)
        self.frequencies, self.magnitude = _rope(gguf, self.arch, self.head_dim, self.weights.get("rope_freqs.weight"))

    def logits(self, ids: Sequence[int]) -> F32:
        """(len(ids), n_vocab): row i scores the token after ids[i], having seen ids[: i + 1]."""
        w = self.weights
        x = w["token_embd.weight"][np.asarray(ids)]
        cos, sin = self._angles(len(ids))
        for i in range(self.n_layers):
            layer = f"blk.{i}."
            h = self._norm(x, w[f"{layer}attn_norm.weight"])
            q, k, v = (self._heads(h @ w[f"{layer}attn_{part}.weight"].T) for part in "qkv")
            if self.arch == "qwen3moe":
                q, k = (self._norm(x, w[f"{layer}attn_{part}_norm.weight"]) for x, part in ((q, "q"), (k, "k")))
                attended = self._attend(_rotate_halves(q, cos, sin), _rotate_halves(k, cos, sin), v)
            else:
                attended = self._attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v)
            x = x + attended @ w[f"{layer}attn_output.weight"].T
            h = self._norm(x, w[f"{layer}ffn_norm.weight"])
            if self.arch == "qwen3moe":
                x = x + self._mixture(h, layer)
            else:
                x = x + _swiglu(h, *(w[f"{layer}ffn_{part}.weight"] for part in ("gate", "up", "down")))
        return np.asarray(self._norm(x, w["output_norm.weight"]) @ self.head.T, np.float32)

    def _mixture(self, h: F32, layer: str) -> F32:
        """Each row through its likeliest experts, weighted by their shares of those experts' probability."""
        gate, up, down = (self.weights[f"{layer}ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        scores = (h @ self.weights[f"{layer}ffn_gate_inp.weight"].T).astype(np.float64)
        out = np.zeros_like(h)
        for row, score in enumerate(scores):
            chosen = np.argsort(-score, kind="stable")[: self._int("expert_used_count")]
            weights = np.exp(score[chosen] - score.max())
            for e, weight in zip(chosen, weights / weights.sum(), strict=True):
                out[row] += np.float32(weight) * _swiglu(h[row : row + 1], gate[e], up[e], down[e])[0]
        return out

    def _norm(self, x: F32, gain: F32) -> F32:
        mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
        return np.asarray((x / np.sqrt(mean + self.eps)) * gain, np.float32)

    def _heads(self, x: F32) -> F32:
        """(tokens, heads * head_dim) -> (heads, tokens, head_dim)."""
        return x.reshape(len(x), -1, self.head_dim).swapaxes(0, 1)

    def _attend(self, q: F32, k: F32, v: F32) -> F32:
        """Causal softmax attention; each key-value head serves n_heads / n_kv_heads query heads in a row."""
        n = q.shape[1]
        future = np.triu(np.ones((n, n), bool), 1)
        out = np.empty_like(q)
        for head in range(self.n_heads):
            of = head // (self.n_heads // self.n_kv_heads)
            scores = (q[head] @ k[of].T).astype(np.float64) / np.sqrt(self.head_dim)
            scores[future] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[head] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32) @ v[of]
        return np.ascontiguousarray(out.swapaxes(0, 1)).reshape(n, -1)

    def _angles(self, n: int) -> tuple[F32, F32]:
        """cos and sin of (positions, pairs), times the magnitude that yarn asks for."""
        angle = np.arange(n)[:, None] * self.frequencies
        cos, sin = np.cos(angle) * self.magnitude, np.sin(angle) * self.magnitude
        return cos.astype(np.float32), sin.astype(np.float32)

    def _int(self, key: str, default: int | None = None) -> int:
        return int(self._value(key, default))

    def _float(self, key: str) -> float:
        return float(self._value(key, None))

    def _value(self, key: str, default: int | None) -> int | float:
        value = self.gguf.metadata.get(f"{self.arch}.{key}", default)
        if not isinstance(value, int | float):
            raise ValueError(f"{self.arch}.{key} is {value!r}; the reference needs a number")
        return value


def _rotate(x: F32, cos: F32, sin: F32) -> F32:
    """Rope on neighbouring pairs (0,1), (2,3) ...: the order llama files are stored for. Dims past the pairs stay."""
    n = 2 * cos.shape[1]
    even, odd = x[..., 0:n:2], x[..., 1:n:2]
    out = x.copy()
    out[..., 0:n:2], out[..., 1:n:2] = even * cos - odd * sin, even * sin + odd * cos
    return out


def _swiglu(h: F32, gate: F32, up: F32, down: F32) -> F32:
    g = (h @ gate.T).astype(np.float64)
    silu = (g / (1.0 + np.exp(-g))).astype(np.float32)
    return np.asarray((silu * (h @ up.T)) @ down.T, np.float32)


def _rotate_halves(x: F32, cos: F32, sin: F32) -> F32:
    """Rope on pairs (0, n / 2), (1, n / 2 + 1) ...: the order qwen files are stored for. Dims past the pairs stay."""
    n = cos.shape[1]
    first, second = x[..., :n], x[..., n : 2 * n]
    out = x.copy()
    out[..., :n], out[..., n : 2 * n] = first * cos - second * sin, first * sin + second * cos
    return out


def _rope(gguf: GgufFile, arch: str, head_dim: int, factors: F32 | None) -> tuple[NDArray[np.float64], float]:
    """(radians per position of each pair, magnitude). `factors` (llama 3's long context) divide the frequencies.

    yarn: pairs that turn more than beta_fast times within the trained context keep their frequency, those under
    beta_slow are slowed by the factor, a ramp lies between; magnitude 1 + 0.1 ln(factor) (arXiv 2309.00071).
    """
    m = gguf.metadata
    n = int(m.get(f"{arch}.rope.dimension_count", head_dim))  # type: ignore[arg-type]
    base = float(m.get(f"{arch}.rope.freq_base", 10000.0))  # type: ignore[arg-type]
    kind = m.get(f"{arch}.rope.scaling.type", "linear")
    factor = float(m.get(f"{arch}.rope.scaling.factor", m.get(f"{arch}.rope.scale_linear", 1.0)) or 1.0)  # type: ignore[arg-type]
    frequencies = base ** (-np.arange(0, n, 2) / n)
    if factors is not None:
        frequencies = frequencies / factors.astype(np.float64)
    if kind == "none" or factor == 1.0:
        return frequencies, 1.0
    if kind == "linear":
        return frequencies / factor, 1.0
    if kind != "yarn":
        raise ValueError(f"rope scaling {kind!r} is not in the reference")
    trained = float(m[f"{arch}.rope.scaling.original_context_length"])  # type: ignore[arg-type]
    fast = float(m.get(f"{arch}.rope.scaling.yarn_beta_fast", 32.0))  # type: ignore[arg-type]
    slow = float(m.get(f"{arch}.rope.scaling.yarn_beta_slow", 1.0))  # type: ignore[arg-type]
    low, high = (n * np.log(trained / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (fast, slow))
    low, high = max(0.0, np.floor(low)), min(n - 1.0, np.ceil(high))
    ramp = np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0.0, 1.0)
    return frequencies * (1 - ramp) + frequencies / factor * ramp, 1.0 + 0.1 * float(np.log(factor))
