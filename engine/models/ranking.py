"""The head of a model that ranks: how well a text answers a query, out of the first row. Not here: computing that row.

    scores = out(tanh(dense(row)))      both with a bias; a file may leave dense away

The classifier of BERT's kin (Devlin et al. 2018), as rerankers are trained with it and as their files name it: cls and
cls.output. Sums are numpy's own over rows, so that no number of threads changes a bit.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnsupportedTensorType
from engine.models.claims import Claims

if TYPE_CHECKING:
    from engine.weights.store import Store

Floats = NDArray[np.float64]
DENSE, OUT = "cls", "cls.output"
READ = ("F32", "F16", "BF16", "Q8_0")


def claim(store: Claims, n_embd: int) -> None:
    """Ask for the head's tensors, where there are any."""
    for name in (DENSE, OUT):
        if store.has(f"{name}.weight"):
            n_rows = n_embd if name == DENSE else store.rows(f"{name}.weight")
            store.table(f"{name}.weight", n_embd, n_rows)
            store.floats(f"{name}.bias", n_rows)


@dataclass(frozen=True)
class Head:
    """`dense` (k, k) with `dense_bias` (k,), None where there is none; `out` (labels, k) with `out_bias` (labels,)."""

    out: Floats
    out_bias: Floats
    dense: Floats | None = None
    dense_bias: Floats | None = None

    def scores(self, row: Floats) -> NDArray[np.float32]:
        """float32 (labels,) of a row (k,): unbounded, the greater the better; the first one is the ranking."""
        if self.dense is not None and self.dense_bias is not None:
            row = np.tanh(np.sum(self.dense * row, axis=1) + self.dense_bias)
        return np.asarray(np.sum(self.out * row, axis=1) + self.out_bias, np.float32)


def head_of(store: "Store", n_embd: int) -> Head | None:
    """The head in a mapped file; None without one. UnsupportedTensorType for a type that is not read."""
    if not store.has(f"{OUT}.weight"):
        return None
    out = _values(store, f"{OUT}.weight").reshape(-1, n_embd)
    out_bias = _values(store, f"{OUT}.bias", len(out))
    if not store.has(f"{DENSE}.weight"):
        return Head(out, out_bias)
    dense = _values(store, f"{DENSE}.weight").reshape(n_embd, n_embd)
    return Head(out, out_bias, dense, _values(store, f"{DENSE}.bias", n_embd))


def _values(store: "Store", name: str, missing: int = 0) -> Floats:
    """All values of a tensor; `missing` zeros for one that is not there."""
    if not store.has(name):
        return np.zeros(missing)
    info = store.gguf.tensors[name]
    if info.type.name not in READ:
        raise UnsupportedTensorType(
            f"the tensor {name} is {info.type.name}, and a ranking head is read as {', '.join(READ)}; get such a file"
        )
    data: NDArray[Any] = np.array(store.bytes[info.offset : info.offset + info.n_bytes])
    if info.type.name == "F32":
        return data.view("<f4").astype(np.float64)
    if info.type.name == "F16":
        return data.view("<f2").astype(np.float64)
    if info.type.name == "BF16":
        return (data.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    blocks = data.reshape(-1, 34)
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float64)
    return np.asarray(scales * blocks[:, 2:].view(np.int8)).reshape(-1)
