"""The mapped file and who took what from it: every tensor is claimed at most once. Not here: moving bytes about.

What a model claims was asked of the header before (models/listing.py), where a file that is not as it should be is
refused: here it is an assertion.
"""

import importlib
from dataclasses import replace

import numpy as np

from engine.gguf.reader import GgufFile, TensorInfo
from engine.kernels.regions import live
from engine.weights.mapped import mapped
from engine.weights.tensor import ExpertMatrix, Matrix, Table, Vector
from engine.weights.watch import Watch


class Store:
    """Claims by name; `matrices`, `vectors` and `tables` list what placement may move. `close` unmaps the file, or the
    files of a model in several. `watch` knows whether they are still those whose headers were read."""

    def __init__(self, gguf: GgufFile) -> None:
        self.gguf, self.watch = gguf, Watch(*(part.path for part in gguf.parts))
        self.map = mapped(gguf.parts, self.watch.is_of)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.base = int(self.bytes.ctypes.data)
        self.matrices: list[Matrix] = []
        self.vectors: list[Vector] = []
        self.tables: list[Table] = []
        self._claimed: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self.gguf.tensors

    def rows(self, name: str) -> int:
        """Of a tensor that is there, whatever a row's width."""
        return self.gguf.tensors[name].n_rows

    def _claim(self, name: str, dims: tuple[int, ...]) -> TensorInfo:
        info = self.gguf.tensors[name]
        assert name not in self._claimed, f"{name} claimed twice"
        assert info.dims[: len(dims)] == dims, f"{name} has dimensions {info.dims}, not {dims}"
        self._claimed.add(name)
        parts = info.parts or (info.offset,)
        for offset in parts:
            live(self, self.base + offset, info.n_bytes // len(parts))
        return info

    def matrix(self, name: str, k: int, n: int) -> Matrix:
        """A matrix to multiply with, not placed yet (its kernels read the mapped file)."""
        return self._matrix(self._claim(name, (k, n)), k, n)

    def _matrix(self, info: TensorInfo, k: int, n: int) -> Matrix:
        assert k % 8 == 0, (info.name, k)
        quant = importlib.import_module(info.type.module)
        at = self.base + info.offset
        parts = tuple(self.base + offset for offset in info.parts)
        matrix = Matrix(info.name, info.type, quant, k, n, at, at, quant.rows, parts=parts)
        self.matrices.append(matrix)
        return matrix

    def halves(self, name: str, k: int, n: int) -> tuple[Matrix, Matrix]:
        """Two matrices under one name, one after the other."""
        assert n % 8 == 0, (name, n)
        info = self._claim(name, (k, 2 * n))
        half = info.n_bytes // 2
        second = replace(info, offset=info.offset + half, n_bytes=half)
        return self._matrix(replace(info, n_bytes=half), k, n), self._matrix(second, k, n)

    def experts(self, name: str, k: int, n: int, count: int) -> ExpertMatrix:
        """`count` matrices under one name; in `matrices` they are one of n * count rows."""
        info = self._claim(name, (k, n, count))
        assert n % 8 == 0, (name, n)
        return ExpertMatrix(self._matrix(info, k, n * count), n, count)

    def vector(self, name: str, k: int, count: int = 1) -> Vector:
        """`count` times k float32."""
        info = self._claim(name, (k, count) if count > 1 else (k,))
        assert info.type.name == "F32", (name, info.type.name)
        self.vectors.append(Vector(name, k * count, self.base + info.offset))
        return self.vectors[-1]

    def table(self, name: str, k: int, n: int) -> Table:
        """Rows to look up, left in the mapped file."""
        info = self._claim(name, (k, n))
        quant = importlib.import_module(info.type.module)
        row_bytes = info.type.row_bytes(k)
        table = Table(name, k, n, self.base + info.offset, row_bytes, k // info.type.items, quant.unpack_row)
        self.tables.append(table)
        return table

    def tied(self, table: Table) -> Matrix:
        """The table once more, as a matrix to multiply with."""
        return self._matrix(self.gguf.tensors[table.name], table.k, table.n)

    def floats(self, name: str, n: int) -> np.ndarray | None:
        """A small F32 tensor that need not be there, as an array of n."""
        if not self.has(name):
            return None
        info = self._claim(name, (n,))
        return self.bytes[info.offset : info.offset + info.n_bytes].view(np.float32).copy()

    def skip(self, prefix: str) -> None:
        """Nobody will ask for tensors of names that begin so."""

    def close(self) -> None:
        """Unmap; addresses into the file are dead afterwards."""
        del self.bytes
        self.map.close()
