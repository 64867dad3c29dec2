"""A header as a model claims from it: every tensor there once, as large as it must be. Not here: any bytes of tensors.

It answers claims with nothing. Importing this costs no numba.
"""

from typing import Any

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, TensorInfo
from engine.gguf.scattered import HEADER


class Listing:
    """The tensors of `gguf`, of which a model of n_layers layers claims all; `claimed` has those that it has."""

    def __init__(self, gguf: GgufFile, n_layers: int) -> None:
        self.gguf, self.n_layers = gguf, n_layers
        self.claimed: set[str] = {HEADER}

    def has(self, name: str) -> bool:
        return name in self.gguf.tensors

    def rows(self, name: str) -> int:
        """Of a tensor that is there, whatever a row's width."""
        return self.gguf.tensors[name].n_rows

    def _claim(self, name: str, dims: tuple[int, ...]) -> TensorInfo:
        info = self.gguf.tensors.get(name)
        if info is None:
            raise BadModelFile(f"the tensor {name} is missing ({self.n_layers} layers are claimed); get a whole file")
        assert name not in self.claimed, f"{name} claimed twice"
        self.claimed.add(name)
        if info.dims[: len(dims)] != dims or any(dim != 1 for dim in info.dims[len(dims) :]):
            raise BadModelFile(f"the tensor {name} has dimensions {info.dims}; {dims} follow from the metadata")
        return info

    def matrix(self, name: str, k: int, n: int) -> Any:
        self._claim(name, (k, n))
        if k % 8:
            raise UnsupportedModel(f"the tensor {name} has rows of {k}; a multiple of 8 is expected")

    def _not_folded(self, name: str) -> None:
        kind = self.gguf.tensors[name].type
        if kind.is_folded:
            raise UnsupportedModel(f"the tensor {name} is {kind.name}, which is supported for whole matrices only")

    def halves(self, name: str, k: int, n: int) -> Any:
        self.matrix(name, k, 2 * n)
        self._not_folded(name)
        if n % 8:
            raise UnsupportedModel(f"the tensor {name} has halves of {n} rows; a multiple of 8 is expected")
        return None, None

    def experts(self, name: str, k: int, n: int, count: int) -> Any:
        self._claim(name, (k, n, count))
        self._not_folded(name)
        if k % 8 or n % 8:
            what = f"rows of {k}" if k % 8 else f"{n} rows an expert"
            raise UnsupportedModel(f"the tensor {name} has {what}; a multiple of 8 is expected")

    def vector(self, name: str, k: int, count: int = 1) -> Any:
        info = self._claim(name, (k, count) if count > 1 else (k,))
        if info.type.name != "F32":
            raise UnsupportedModel(f"the tensor {name} is {info.type.name}; F32 is expected for a vector")

    def table(self, name: str, k: int, n: int) -> Any:
        self._claim(name, (k, n))
        self._not_folded(name)

    def tied(self, table: Any) -> Any:
        """Claimed as a table already."""

    def floats(self, name: str, n: int) -> Any:
        if self.has(name):
            info = self._claim(name, (n,))
            if info.type.name != "F32":
                raise BadModelFile(f"the tensor {name} is {info.type.name}; F32 is expected")

    def skip(self, prefix: str) -> None:
        self.claimed.update(name for name in self.gguf.tensors if name.startswith(prefix))

    def finish(self) -> None:
        """All claimed? A tensor that nobody asked for means a family other than the file says, or a part left out."""
        left = sorted(set(self.gguf.tensors) - self.claimed)
        if any(name.startswith(f"blk.{self.n_layers}.") for name in left):
            raise BadModelFile(f"block_count gives {self.n_layers} layers, but the file holds tensors of further ones")
        if left:
            some = ", ".join(quoted(name, 60) for name in left[:3])
            raise UnsupportedModel(
                f"{len(left)} tensors belong to no known part of this architecture ({some}"
                f"{', ...' if len(left) > 3 else ''}); the file needs a newer Colibri"
            )
