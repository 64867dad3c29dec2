"""What a model asks of whoever holds a file's tensors, and the same inside one layer. Not here: the holders themselves.

A model claims its tensors once, by one piece of code, and that code runs twice: with the header alone (listing.py), for
planning and refusals, and with the mapped file (weights/store.py). So nobody looks into what a claim gives back before
the program is recorded: a header has nothing to look into.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from engine.weights.tensor import ExpertMatrix, Matrix, Table, Vector


class Claims(Protocol):
    """k values in a row, n rows. A tensor is claimed once; whatever is not claimed in the end is refused."""

    def has(self, name: str) -> bool: ...
    def rows(self, name: str) -> int: ...
    def matrix(self, name: str, k: int, n: int) -> "Matrix": ...
    def halves(self, name: str, k: int, n: int) -> "tuple[Matrix, Matrix]": ...
    def experts(self, name: str, k: int, n: int, count: int) -> "ExpertMatrix": ...
    def vector(self, name: str, k: int, count: int = 1) -> "Vector": ...
    def table(self, name: str, k: int, n: int) -> "Table": ...
    def tied(self, table: "Table") -> "Matrix": ...
    def floats(self, name: str, n: int) -> "np.ndarray | None": ...
    def skip(self, prefix: str) -> None: ...


class Scope:
    """The claims of layer `i`: "attn_q" stands for blk.i.attn_q.weight."""

    def __init__(self, store: Claims, i: int) -> None:
        self.store, self.i = store, i

    def _name(self, part: str, what: str = "weight") -> str:
        return f"blk.{self.i}.{part}.{what}"

    def has(self, part: str, what: str = "weight") -> bool:
        """Whether the file has such a tensor."""
        return self.store.has(self._name(part, what))

    def matrix(self, part: str, k: int, n: int) -> "Matrix":
        """To multiply with."""
        return self.store.matrix(self._name(part), k, n)

    def halves(self, part: str, k: int, n: int) -> "tuple[Matrix, Matrix]":
        """A tensor whose rows are those of two matrices, one after the other."""
        return self.store.halves(self._name(part), k, n)

    def experts(self, part: str, k: int, n: int, count: int) -> "ExpertMatrix":
        """`count` matrices under one name."""
        return self.store.experts(self._name(part), k, n, count)

    def vector(self, part: str, k: int) -> "Vector":
        """float32, of a norm for example."""
        return self.store.vector(self._name(part), k)

    def bias(self, part: str, n: int, count: int = 1) -> "Vector":
        """What is added to a product, or to `count` products of as many matrices."""
        return self.store.vector(self._name(part, "bias"), n, count)

    def skip(self) -> None:
        """Nothing of this layer is computed."""
        self.store.skip(f"blk.{self.i}.")
