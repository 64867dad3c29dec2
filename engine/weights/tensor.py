"""A matrix and a vector as a model holds them: what they are and where they lie now. Not here: putting them there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, NamedTuple

from engine.kernels.jit import Kernel
from engine.kernels.program import Buffer
from engine.quants.registry import QuantType


class Visit(NamedTuple):
    """A stretch that is read from disk each time: where it will lie, and the ring's names for reading it, for being
    done with it and for what is read into its place then (kernels/ring.py)."""

    address: int
    ring: int
    request: int
    follower: int


@dataclass(frozen=True)
class Span:
    """Panels first..first + n_panels of a matrix at `address`; with a `visit` they are there only while it lasts, and
    who records an op that multiplies them asks for it, once and in order of use."""

    first: int
    n_panels: int
    address: int
    body: Kernel
    visit: Callable[[], Visit] | None = None


@dataclass
class Matrix:
    """`n` rows of `k` values; `blocks` in a row. `address` and `body` change when placement moves the bytes.

    `source` is the first byte in the mapped file, `parts` are the addresses there of equal stretches of rows when these
    lie apart (experts of a file laid out anew): nothing is at `address` then until it is placed. A mapped matrix whose
    rows are no multiple of eight has its last rows, padded with zeros to eight, in `tail`; a resident one has them in
    its last panel. A streamed one lies in several `pieces`, its tail apart.
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
    pieces: tuple[Span, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where all its panels lie, ascending."""
        whole = self.n_panels - (self.tail is not None)
        spans = self.pieces or ((Span(0, whole, self.address, self.body),) if whole else ())
        return (*spans, Span(whole, 1, self.tail.address, self.quant.rows)) if self.tail else spans

    @property
    def is_scattered(self) -> bool:
        """Whether its rows lie apart where they are now."""
        return bool(self.parts) and self.address == self.source

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The panels first..last-1 as runs that are one stretch of the file: its address, and its panels p..q-1."""
        if not self.parts:
            yield self.source + first * self.panel_bytes, first, last
            return
        each = self.n_panels // len(self.parts)
        while first < last:
            part, inside = divmod(first, each)
            end = min(last, (part + 1) * each)
            yield self.parts[part] + inside * self.panel_bytes, first, end
            first = end

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


@dataclass
class Vector:
    """`k` float32 at `address`; who multiplies with it reads activations of the format `act`."""

    name: str
    k: int
    address: int
    act: ClassVar[str] = "f32"


@dataclass
class Table:
    """A matrix whose single rows are read: `row_bytes` apart, unpacked by `unpack`; from memory at `address`, or
    where there is a `ring` (for its errors) from the file `fd` at `offset`."""

    name: str
    k: int
    n: int
    address: int
    row_bytes: int
    blocks: int
    unpack: Kernel
    fd: int = -1
    offset: int = 0
    ring: int = 0
