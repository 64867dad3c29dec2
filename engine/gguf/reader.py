"""Reads the header of a GGUF file: metadata and where each tensor lies. Not here: tensor data, what keys mean.

Nothing in the file is believed: every count is compared with the bytes that are left before anything is allocated,
every product and sum is a plain Python integer, and each fault is a BadModelFile that names key or tensor.
"""

import os
import stat
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, TypeAlias

from engine.errors import BadModelFile, ModelUnreadable, UnsupportedTensorType
from engine.gguf import layout as lay
from engine.gguf.layout import quoted
from engine.gguf.sniff import foreign
from engine.quants.registry import QuantType, by_id

Value: TypeAlias = int | float | bool | str | list["Value"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `dims` has the contiguous dimension first; `offset` counts from the start of the file.

    One that lies apart (scattered.py) has the offsets of its equal `parts`, `offset` being the first.
    """

    name: str
    dims: tuple[int, ...]
    type: QuantType
    offset: int
    n_bytes: int
    n_rows: int
    k: int
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One of the files that hold a model: its bytes are those from `begin` on."""

    path: Path
    begin: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A checked header: every tensor lies whole inside the file and on nobody else's bytes.

    A model in several files (split.py) is one of `n_bytes` with several `parts`; `path` is the first, and `version`,
    `alignment`, `data_offset` are its.
    """

    path: Path
    version: int
    metadata: dict[str, Value]
    kinds: dict[str, str]
    tensors: dict[str, TensorInfo]
    alignment: int
    data_offset: int
    n_bytes: int
    parts: tuple[Part, ...]


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Read and check a header; BadModelFile or UnsupportedTensorType in one sentence, beginning with the file's name.

    Any part of a model in several files names the whole. Strings are text; bytes that are not UTF-8 survive as
    surrogate escapes.
    """
    path = Path(path)
    from engine.gguf.scattered import gathered
    from engine.gguf.split import joined

    name = quoted(path.name, 120)
    try:
        return gathered(joined(_read_one(path), _read_one))
    except BadModelFile as error:
        raise type(error)(f"{name}: {error}") from None
    except FileNotFoundError:
        raise BadModelFile(f"{name}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise ModelUnreadable(f"{name}: cannot be read ({reason.lower()})") from None


def _read_one(path: Path) -> GgufFile:
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise BadModelFile("a folder was given where one GGUF file is expected; name the file in it")
    if not stat.S_ISREG(found.st_mode):
        raise BadModelFile("not a regular file; give a GGUF file on disk")
    with path.open("rb") as file:
        return parse_gguf(path, file, os.fstat(file.fileno()).st_size)


def parse_gguf(path: Path, file: BinaryIO, n_bytes: int) -> GgufFile:
    """The header at the start of `file`, of a file that has `n_bytes` in all, every tensor by the name it has there;
    BadModelFile says nothing of the file's name."""
    return _Header(path, file, n_bytes).read()


class _Header:
    """A cursor over the file's head. `buf` holds all bytes read so far and grows on demand."""

    def __init__(self, path: Path, file: BinaryIO, n_bytes: int) -> None:
        self.path, self.file, self.n_bytes = path, file, n_bytes
        self.buf = b""
        self.pos = 0
        self.n_items = 0
        self.n_arrays = 0
        self.where = "its first bytes"
        self.architecture = ""

    def read(self) -> GgufFile:
        version, n_tensors, n_entries = self._head()
        metadata: dict[str, Value] = {}
        kinds: dict[str, str] = {}
        for i in range(n_entries):
            self.where = f"metadata entry {i + 1} of {n_entries}"
            key = self._text(lay.MAX_KEY_BYTES, "a key")
            if key in metadata:
                raise BadModelFile(f"the key {quoted(key)} stands twice in the metadata")
            self.where = f"the value of {quoted(key)}"
            metadata[key], kinds[key] = self._value(self._u32(), 0)
        alignment = _alignment(metadata, kinds)
        self.architecture = str(metadata.get("general.architecture", ""))
        entries = [self._tensor(i, n_tensors) for i in range(n_tensors)]
        data_offset = lay.padded(self.pos, alignment)
        tensors = _placed(entries, alignment, data_offset, self.n_bytes)
        whole = (Part(self.path, 0, self.n_bytes),)
        return GgufFile(self.path, version, metadata, kinds, tensors, alignment, data_offset, self.n_bytes, whole)

    def _head(self) -> tuple[int, int, int]:
        head = self.file.read(min(1 << 20, self.n_bytes))
        self.buf = head
        if not head:
            raise BadModelFile("the file is empty (0 bytes); download it again")
        if not head.startswith(lay.MAGIC):
            if lay.MAGIC.startswith(head):
                raise BadModelFile(f"the file ends after {len(head)} bytes; download it again")
            raise BadModelFile(f"this is not a GGUF file but {foreign(head[:1024], self.n_bytes)}")
        self.pos = len(lay.MAGIC)
        version = self._u32()
        if version not in lay.VERSIONS:
            raise BadModelFile(_wrong_version(version))
        n_tensors, n_entries = self._u64(), self._u64()
        room = self.n_bytes - self.pos
        _count("metadata entries", n_entries, lay.MAX_ENTRIES, lay.MIN_ENTRY_BYTES, room)
        _count("tensors", n_tensors, lay.MAX_TENSORS, lay.MIN_TENSOR_BYTES, room)
        return version, n_tensors, n_entries

    def _need(self, end: int) -> None:
        """Have the bytes up to `end` in `buf`, or say that the file is too short."""
        if end <= len(self.buf):
            return
        if end > self.n_bytes:
            raise BadModelFile(
                f"the file ends after {self.n_bytes:,} bytes, inside {self.where}, which needs {end - self.pos:,} bytes"
                f" from byte {self.pos:,} on; the download is cut short or damaged, download it again"
            )
        if end > lay.MAX_HEADER_BYTES:
            raise BadModelFile(f"its header passes {lay.MAX_HEADER_BYTES:,} bytes in {self.where}; no real model does")
        goal = min(max(end, 2 * len(self.buf)), self.n_bytes, lay.MAX_HEADER_BYTES)
        self.buf += self.file.read(goal - len(self.buf))
        if end > len(self.buf):
            raise BadModelFile(f"the file became shorter while it was read ({len(self.buf):,} bytes); try again")

    def _take(self, n: int) -> bytes:
        end = self.pos + n
        self._need(end)
        piece = self.buf[self.pos : end]
        self.pos = end
        return piece

    def _u32(self) -> int:
        value: int = lay.U32.unpack(self._take(4))[0]
        return value

    def _u64(self) -> int:
        value: int = lay.U64.unpack(self._take(8))[0]
        return value

    def _text(self, limit: int, what: str) -> str:
        n = self._u64()
        if n == 0 or n > limit:
            raise BadModelFile(
                f"{self.where} claims {what} of {n:,} bytes; 1 to {limit:,} are possible, so the file is damaged"
            )
        return self._take(n).decode("utf-8", "surrogateescape")

    def _value(self, kind: int, depth: int) -> tuple[Value, str]:
        if kind not in lay.KINDS:
            raise BadModelFile(f"{self.where} is of unknown kind {kind}; the file is damaged")
        name, letter = lay.KINDS[kind]
        if kind == lay.STRING:
            return self._take(self._u64()).decode("utf-8", "surrogateescape"), name
        if kind == lay.ARRAY:
            return self._array(depth + 1)
        value = struct.unpack("<" + letter, self._take(lay.MIN_BYTES[kind]))[0]
        return (self._truth(value) if kind == lay.BOOL else value), name

    def _truth(self, value: int) -> bool:
        if value > 1:
            raise BadModelFile(f"{self.where} is a bool with value {value}; 0 or 1 is expected")
        return value == 1

    def _array(self, depth: int) -> tuple[list[Value], str]:
        kind, count = lay.ARRAY_HEAD.unpack(self._take(lay.ARRAY_HEAD.size))
        if kind not in lay.KINDS:
            raise BadModelFile(f"{self.where} is an array of unknown kind {kind}; the file is damaged")
        if depth > lay.MAX_DEPTH:
            raise BadModelFile(f"{self.where} nests arrays deeper than {lay.MAX_DEPTH}; no real model does")
        self.n_items += count
        self.n_arrays += 1
        _count(f"items in {self.where}", count, lay.MAX_ITEMS, lay.MIN_BYTES[kind], self.n_bytes - self.pos)
        if self.n_items > lay.MAX_ITEMS or self.n_arrays > lay.MAX_ARRAYS:
            raise BadModelFile(
                f"its metadata hold over {lay.MAX_ARRAYS:,} arrays or {lay.MAX_ITEMS:,} items; no real model does"
            )
        name, letter = lay.KINDS[kind]
        if kind == lay.STRING:
            return self._strings(count), "array[string]"
        if kind == lay.ARRAY:
            return [self._array(depth + 1)[0] for _ in range(count)], "array[array]"
        values: list[Value] = list(struct.unpack(f"<{count}{letter}", self._take(count * lay.MIN_BYTES[kind])))
        if kind == lay.BOOL:
            values = [self._truth(int(v)) for v in values if not isinstance(v, str | list)]
        return values, f"array[{name}]"

    def _strings(self, count: int) -> list[Value]:
        # The one loop that matters: 776k strings of a 262k vocabulary. Locals keep it at a quarter of a second.
        unpack = lay.U64.unpack_from
        buf, pos, out = self.buf, self.pos, []
        for _ in range(count):
            start = pos + 8
            if start > len(buf):
                self.pos = pos
                self._need(start)
                buf = self.buf
            pos = start + unpack(buf, pos)[0]
            if pos > len(buf):
                self.pos = start
                self._need(pos)
                buf = self.buf
            out.append(buf[start:pos])
        self.pos = pos
        return [piece.decode("utf-8", "surrogateescape") for piece in out]

    def _tensor(self, i: int, n: int) -> tuple[str, tuple[int, ...], QuantType, int]:
        self.where = f"tensor entry {i + 1} of {n}"
        name = self._text(lay.MAX_NAME_BYTES, "a name")
        self.where = f"the entry of tensor {quoted(name)}"
        n_dims = self._u32()
        if not 1 <= n_dims <= lay.MAX_DIMS:
            raise BadModelFile(f"tensor {quoted(name)} has {n_dims} dimensions; 1 to {lay.MAX_DIMS} are possible")
        dims = tuple(self._u64() for _ in range(n_dims))
        try:
            kind = by_id(self._u32(), self.architecture)
        except UnsupportedTensorType as error:
            raise UnsupportedTensorType(f"tensor {quoted(name)}: {error}") from None
        return name, dims, kind, self._u64()


def _count(what: str, n: int, limit: int, min_bytes: int, room: int) -> None:
    if n > limit:
        raise BadModelFile(f"it claims {n:,} {what}; more than {limit:,} is no real model, so the file is damaged")
    if n * min_bytes > room:
        raise BadModelFile(
            f"it claims {n:,} {what}, at least {n * min_bytes:,} bytes, but only {room:,} bytes follow;"
            " the download is cut short or damaged, download it again"
        )


def _wrong_version(version: int) -> str:
    reversed_version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version > 0xFFFF and reversed_version <= 0xFFFF:
        return f"this is a big-endian GGUF file (version {reversed_version}); get the little-endian file of the model"
    if version == 1:
        return "this is GGUF version 1 of August 2023; versions 2 and 3 are read, get a newer file of the model"
    return f"this is GGUF version {version}; versions 2 and 3 are read"


def _alignment(metadata: dict[str, Value], kinds: dict[str, str]) -> int:
    value = metadata.get("general.alignment", lay.DEFAULT_ALIGNMENT)
    kind = kinds.get("general.alignment", "uint32")
    if kind != "uint32" or not isinstance(value, int):
        raise BadModelFile(f"general.alignment is {quoted(str(value))} of kind {kind}; a uint32 is expected")
    if not 8 <= value <= lay.MAX_ALIGNMENT or value & (value - 1):
        raise BadModelFile(
            f"general.alignment is {value}; a power of two from 8 to {lay.MAX_ALIGNMENT:,} is expected"
        )
    return value


def _placed(
    entries: list[tuple[str, tuple[int, ...], QuantType, int]], alignment: int, data_offset: int, n_bytes: int
) -> dict[str, TensorInfo]:
    """Sizes and absolute offsets, with every extent inside the file and no two on the same bytes."""
    tensors: dict[str, TensorInfo] = {}
    for name, dims, kind, offset in entries:
        if name in tensors:
            raise BadModelFile(f"the tensor {quoted(name)} stands twice in the file")
        n_rows, size = _size(name, dims, kind)
        if offset % alignment:
            raise BadModelFile(f"tensor {quoted(name)} starts at offset {offset:,}, no multiple of {alignment}")
        tensors[name] = TensorInfo(name, dims, kind, data_offset + offset, size, n_rows, dims[0])
    _check_extents(tensors, alignment, data_offset, n_bytes)
    return tensors


def _size(name: str, dims: tuple[int, ...], kind: QuantType) -> tuple[int, int]:
    n_rows = 1
    for dim in dims[1:]:
        n_rows *= dim
    n_values = n_rows * dims[0]
    if n_values == 0 or n_values > lay.MAX_ELEMENTS:
        raise BadModelFile(
            f"tensor {quoted(name)} has dimensions {dims}, {n_values:,} values; 1 to {lay.MAX_ELEMENTS:,} are possible"
        )
    try:
        return n_rows, kind.tensor_bytes(n_rows, dims[0])
    except BadModelFile as error:
        raise BadModelFile(f"tensor {quoted(name)} with dimensions {dims}: {error}") from None


def _check_extents(tensors: dict[str, TensorInfo], alignment: int, data_offset: int, n_bytes: int) -> None:
    ordered = sorted(tensors.values(), key=lambda t: t.offset)
    for left, right in pairwise(ordered):
        if left.offset + left.n_bytes > right.offset:
            both = f"{quoted(left.name)} and {quoted(right.name)}"
            raise BadModelFile(f"tensors {both} lie on the same bytes; the file is damaged, download it again")
    if not ordered:
        return
    last = ordered[-1]
    end = last.offset + last.n_bytes
    if end <= n_bytes:
        return
    # Without gaps the data would need this much; a tensor past it is a wrong offset, not a missing tail.
    plausible = data_offset + sum(lay.padded(t.n_bytes, alignment) for t in ordered)
    if end <= plausible:
        raise BadModelFile(
            f"the file ends after {n_bytes:,} of {end:,} bytes; the download is cut short, download it again"
        )
    raise BadModelFile(
        f"tensor {quoted(last.name)} with dimensions {last.dims} starts at byte {last.offset:,} of a file of"
        f" {n_bytes:,} bytes; the file is damaged, download it again"
    )
