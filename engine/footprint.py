"""What a model takes, in bytes, part by part: weights by kind, cache, work buffers, both processes. Not here: what the
machine has (budget.py), what is decided from both (planner.py). Importing this costs no numba.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from engine.cache.layout import PAGE, kv_bytes, whole_pages
from engine.gguf.digest import model_digest
from engine.gguf.reader import GgufFile, TensorInfo
from engine.models.latent import LatentSizes
from engine.models.shape import DecoderShape

MIB = 1 << 20
KINDS = ("embedding", "attention", "ffn", "experts", "output", "norms")
# At most, anonymous memory without weights, cache and buffers. With the bundled model 91 MiB were measured for the
# worker (146 in its first minute, while it compiles) and 78 for the API process with its template renderer; a
# vocabulary of 262,000 entries takes some 50 MiB more of each.
WORKER_BYTES = 250 * MIB
API_BYTES = 150 * MIB
# Both processes, their buffers and what the kernel wants left over come to this much at least.
LEAST_ENGINE_BYTES = 512 * MIB
# The peak of one process's own memory with compiled kernels: a command that runs the model itself, a worker, which
# has no templates and no encoder; and what each word of the vocabulary takes on top.
COMMAND_BYTES, SERVED_BYTES, WORD_BYTES = 90 * MIB, 55 * MIB, 200
# What the kernel wants left over beside a stream: mapped code of numba and Python, page tables, sockets.
STREAM_MARGIN = 96 * MIB


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: of `n` in each of `n_layers` layers a token uses `n_used`. `n_bytes` are those of all of them,
    `largest_bytes` those of one expert (gate, up and down together) of the layer with the largest."""

    n: int
    n_used: int
    n_layers: int
    n_bytes: int
    largest_bytes: int

    @property
    def cycle_bytes(self) -> int:
        """What one token uses in all its layers: a cache of less has thrown an expert away before it comes again."""
        return self.n_bytes * self.n_used // self.n


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What planning needs of a file, small enough to keep for a whole folder: a header may hold 50 MB of words.
    `macs`: how many weights a token multiplies with; `digest` (gguf/digest.py) only where there are experts, whose heat
    is kept under it."""

    name: str
    shape: DecoderShape
    weights: dict[str, int]
    n_tensors: int
    file_bytes: int
    experts: Experts | None = None
    macs: int = 0
    digest: str = ""

    @classmethod
    def of(cls, gguf: GgufFile, shape: DecoderShape) -> "ModelFacts":
        """The facts of a header that was read and checked."""
        behind = tuple(f"blk.{shape.n_layers + i}." for i in range(shape.n_skipped))
        used = [tensor for tensor in gguf.tensors.values() if not tensor.name.startswith(behind)]
        weights = weights_by_kind(used)
        experts = experts_of(used, shape.n_used)
        macs = macs_of(used, shape.tied, experts)
        digest = model_digest(gguf) if experts else ""
        return cls(gguf.path.name, shape, weights, len(gguf.tensors), gguf.n_bytes, experts, macs, digest)

    @property
    def weights_bytes(self) -> int:
        return sum(self.weights.values())

    @property
    def dense_bytes(self) -> int:
        """What every token multiplies with; of the embedding it looks up a row, unless that is the output too."""
        tied = self.weights["embedding"] if self.shape.tied else 0
        return self.weights["attention"] + self.weights["ffn"] + self.weights["output"] + tied


def kind_of(name: str, n_dims: int) -> str:
    """Which of KINDS a tensor belongs to, by its name. Vectors (norms, biases, rope factors) count as norms."""
    if n_dims < 2 or "norm" in name or name.endswith(".bias"):
        return "norms"
    if not name.startswith("blk."):
        return "output" if re.match(r"output|cls|lm_head", name) else "embedding"
    if "_exps" in name:
        return "experts"
    return "ffn" if ".ffn_" in name else "attention"


def weights_by_kind(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """Bytes of all tensors by kind; each kind is there, if with 0. A matrix that is also the output counts once."""
    weights = dict.fromkeys(KINDS, 0)
    for tensor in tensors:
        n_bytes = tensor.n_rows * tensor.type.row_bytes(tensor.k) if tensor.type.is_folded else tensor.n_bytes
        weights[kind_of(tensor.name, sum(dim > 1 for dim in tensor.dims))] += n_bytes
    return weights


def experts_of(tensors: Iterable[TensorInfo], n_used: int) -> Experts | None:
    """The routed experts among the tensors, stacked along the last dimension; None for a model without any."""
    layers: dict[str, int] = {}
    n = 0
    for tensor in tensors:
        if kind_of(tensor.name, len(tensor.dims)) == "experts":
            layer = tensor.name.split(".")[1]
            layers[layer] = layers.get(layer, 0) + tensor.n_bytes
            n = max(n, tensor.dims[-1])
    if not layers:
        return None
    return Experts(n, min(max(1, n_used), n), len(layers), sum(layers.values()), -(-max(layers.values()) // n))


def macs_of(tensors: Iterable[TensorInfo], is_tied: bool, experts: Experts | None) -> int:
    """Multiplications that one token costs, attention's own left out."""
    values = dict.fromkeys(KINDS, 0)
    for tensor in tensors:
        values[kind_of(tensor.name, sum(dim > 1 for dim in tensor.dims))] += tensor.k * tensor.n_rows
    routed = values["experts"] * experts.n_used // experts.n if experts else 0
    return values["attention"] + values["ffn"] + values["output"] + routed + is_tied * values["embedding"]


def attention_macs(shape: DecoderShape, depth: int) -> int:
    """Multiplications that a token costs to look at `depth` positions, of which a windowed layer sees its window."""
    seen = sum(min(depth, shape.window(i) or depth) for i in range(shape.n_layers))
    return seen * shape.n_heads * (shape.head_dim + shape.v_dim)


def cache_bytes(
    shape: DecoderShape, n_ctx: int, type_k: str, type_v: str, n_seqs: int = 1, ubatch_size: int = 512
) -> int:
    """Bytes of `n_seqs` whole contexts of cached keys and values; a window keeps what `ubatch_size` rows look at."""
    heads = [shape.n_kv_heads] * shape.n_layers
    k_dim, v_dim = shape.head_dim, shape.v_dim
    return n_seqs * kv_bytes(heads, k_dim, v_dim, n_ctx, type_k, type_v, shape.windows, ubatch_size)


def out_rows(parallel: int) -> int:
    """Rows of logits that one step may ask for: a token and three guesses for each sequence, 16 at least."""
    return max(16, 4 * parallel)


def buffers_bytes(shape: DecoderShape, n_ctx: int, ubatch_size: int, threads: int, parallel: int = 1) -> int:
    """At least the bytes of all work buffers: `ubatch_size` rows of activations, attention's partial sums, rotations
    for `n_ctx` positions, the rows of logits, each thread's scratch. A test compares this with what is allocated."""
    n_q, n_kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * (shape.head_dim + shape.v_dim)
    rows = min(ubatch_size, whole_pages(n_ctx))
    # Activations are kept as float32 and as blocks of 96 bytes per 32 values, for whichever types read them.
    acts = 4 * (shape.n_embd + n_q + n_kv) + 7 * (shape.n_embd + n_q) + _latent_bytes(shape.latent)
    acts += 8 * (shape.n_ff + shape.n_ff_shared) + 4 * shape.n_embd * shape.joins_apart
    tiles, logits = whole_pages(n_ctx) // PAGE, 4 * out_rows(parallel) * (shape.n_vocab + 7)
    partials = max(rows, 2 * tiles) * shape.n_heads * (64 + 4 * shape.v_dim)
    scratch = 512 * rows + 64 * max(shape.n_embd, n_q, shape.n_ff) + 16 * shape.n_vocab + 64 * 1024
    whole = rows * acts + partials + 4 * shape.rope_dim * n_ctx * shape.n_rotations + logits + threads * scratch
    return whole + (_mixture_bytes(shape, rows, threads) if shape.n_experts else 0)


def _latent_bytes(z: LatentSizes | None) -> int:
    """Of a row: it, compressed queries, and of each head its query, what meets K and V, its result."""
    if z is None:
        return 0
    head = 4 * (z.plain + z.rope_dim) + 4 * (z.plain + z.rank) + 11 * z.v_dim + 4 * (z.plain + z.v_dim)
    return 4 * (z.rank + z.rope_dim) + 11 * (z.q_rank + z.rank) + z.n_heads * head


def _mixture_bytes(shape: DecoderShape, rows: int, threads: int) -> int:
    """Scores, lists, a hidden row for each row and expert of its own; for each thread the input rows of one expert."""
    slot = 32 + 11 * shape.n_ff_exp
    table = shape.n_experts * (32 * shape.n_layers + 24) + 32
    thread = 48 * 1024 + 64 * max(shape.n_embd, shape.n_ff_exp) + 64 * 7 * shape.n_embd
    scores = 4 * (2 * shape.n_experts + shape.routing.n_groups + 7)
    return rows * (scores + shape.n_used * slot) + table + threads * thread


def engine_bytes(buffers: int) -> int:
    """What comes on top of weights and cache: both processes, the buffers, and a rest that is nobody's."""
    return max(LEAST_ENGINE_BYTES, WORKER_BYTES + API_BYTES + buffers)


def stream_engine_bytes(buffers: int, n_vocab: int, is_served: bool) -> int:
    """The same beside a stream, where each MiB that is kept free is read from disk again for each token."""
    return worker_bytes(n_vocab) + (API_BYTES if is_served else 0) + buffers + STREAM_MARGIN


def worker_bytes(n_vocab: int) -> int:
    """What is kept free beside a stream for the process that computes, weights, cache and buffers left out."""
    return COMMAND_BYTES + WORD_BYTES * n_vocab


def private_bytes(n_vocab: int, is_served: bool) -> int:
    """What that process's private memory really peaks at."""
    return (SERVED_BYTES if is_served else COMMAND_BYTES) + WORD_BYTES * n_vocab
