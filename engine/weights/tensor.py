"""A matrix and a vector as a model holds them: what they are and where they lie now. Not here: putting them there."""

from dataclasses import dataclass
from types import ModuleType

from engine.kernels.jit import Kernel
from engine.kernels.program import Buffer
from engine.quants.registry import QuantType


@dataclass
class Matrix:
    """`n` rows of `k` values; `blocks` in a row. `address` and `body` change when placement moves the bytes.

    `source` is the first byte in the mapped file. A mapped matrix whose rows are no multiple of eight has its last
    rows, padded with zeros to eight, in `tail`; a resident one has them in its last panel.
    """

    name: str
    type: QuantType
    quant: ModuleType
    k: int
    n: int
    source: int
    address: int
    body: Kernel
    tail: Buffer | None = None

    @property
    def blocks(self) -> int:
        return self.k // self.type.items

    @property
    def act(self) -> str:
        """The activation format its kernels multiply with."""
        return str(self.quant.ACT)

    @property
    def panel_bytes(self) -> int:
        """Bytes of eight rows, packed or not."""
        return self.blocks * self.type.n_bytes * 8

    @property
    def n_panels(self) -> int:
        return -(-self.n // 8)


@dataclass(frozen=True)
class ExpertMatrix:
    """`count` matrices of n rows of k values, one after the other in `whole`, which is placed like any other matrix."""

    whole: Matrix
    n: int
    count: int

    @property
    def n_bytes(self) -> int:
        """Bytes of one expert's rows, packed or not: n is a multiple of eight."""
        return self.n // 8 * self.whole.panel_bytes


@dataclass(frozen=True)
class Vector:
    """`k` float32 at `address`."""

    name: str
    k: int
    address: int


@dataclass(frozen=True)
class Table:
    """A matrix whose single rows are read: `row_bytes` apart, unpacked by `unpack`."""

    name: str
    k: int
    n: int
    address: int
    row_bytes: int
    blocks: int
    unpack: Kernel
