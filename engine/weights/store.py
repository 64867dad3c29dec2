"""The mapped file and who took what from it: every tensor is claimed exactly once. Not here: moving bytes about."""

import importlib
import mmap

import numpy as np

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, TensorInfo
from engine.gguf.scattered import HEADER
from engine.kernels.regions import live
from engine.weights.tensor import ExpertMatrix, Matrix, Table, Vector

# Tensors that a file may carry beside those of its family and that are read elsewhere or change nothing.
_ELSEWHERE = ("rope_freqs.weight", HEADER)


class Store:
    """Claims by name; `matrices`, `vectors` and `tables` list what placement may move. `close` unmaps the file."""

    def __init__(self, gguf: GgufFile) -> None:
        self.gguf = gguf
        with gguf.path.open("rb") as file:
            self.map = mmap.mmap(file.fileno(), gguf.n_bytes, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.base = int(self.bytes.ctypes.data)
        self.matrices: list[Matrix] = []
        self.vectors: list[Vector] = []
        self.tables: list[Table] = []
        self._claimed: set[str] = set()

    def _claim(self, name: str, dims: tuple[int, ...]) -> TensorInfo:
        info = self.gguf.tensors.get(name)
        if info is None:
            raise BadModelFile(f"{self.gguf.path.name}: the tensor {name} is missing; get a whole file")
        assert name not in self._claimed, f"{name} claimed twice"
        if info.dims[: len(dims)] != dims:
            raise BadModelFile(f"{self.gguf.path.name}: {name} has dimensions {info.dims}; {dims} are expected")
        self._claimed.add(name)
        parts = info.parts or (info.offset,)
        for offset in parts:
            live(self, self.base + offset, info.n_bytes // len(parts))
        return info

    def matrix(self, name: str, k: int, n: int) -> Matrix:
        """A matrix to multiply with, not placed yet (its kernels read the mapped file)."""
        return self._matrix(self._claim(name, (k, n)), k, n)

    def _matrix(self, info: TensorInfo, k: int, n: int) -> Matrix:
        if k % 8:
            raise UnsupportedModel(f"{self.gguf.path.name}: {info.name} has rows of {k}; a multiple of 8 is expected")
        quant = importlib.import_module(info.type.module)
        at = self.base + info.offset
        parts = tuple(self.base + offset for offset in info.parts)
        matrix = Matrix(info.name, info.type, quant, k, n, at, at, quant.rows, parts=parts)
        self.matrices.append(matrix)
        return matrix

    def experts(self, name: str, k: int, n: int, count: int) -> ExpertMatrix:
        """`count` matrices under one name; in `matrices` they are one of n * count rows."""
        info = self._claim(name, (k, n, count))
        if n % 8:
            raise UnsupportedModel(f"{self.gguf.path.name}: {name} has {n} rows an expert; a multiple of 8 is expected")
        return ExpertMatrix(self._matrix(info, k, n * count), n, count)

    def vector(self, name: str, k: int) -> Vector:
        info = self._claim(name, (k,))
        if info.type.name != "F32":
            raise UnsupportedModel(f"{self.gguf.path.name}: {name} is {info.type.name}; F32 is expected")
        self.vectors.append(Vector(name, k, self.base + info.offset))
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

    def floats(self, name: str) -> np.ndarray | None:
        """A small F32 tensor that need not be there, as an array."""
        info = self.gguf.tensors.get(name)
        if info is None:
            return None
        return self.bytes[info.offset : info.offset + info.n_bytes].view(np.float32).copy()

    def finish(self) -> None:
        """All claimed? A tensor nobody asked for means the family is another one than the file says."""
        left = sorted(set(self.gguf.tensors) - self._claimed - set(_ELSEWHERE))
        if left:
            some = ", ".join(quoted(name, 60) for name in left[:3])
            raise UnsupportedModel(
                f"{self.gguf.path.name}: {len(left)} tensors belong to no known part of this architecture ({some}"
                f"{', ...' if len(left) > 3 else ''}); the file needs a newer Colibri"
            )

    def close(self) -> None:
        """Unmap; addresses into the file are dead afterwards."""
        del self.bytes
        self.map.close()
