"""Writes a GGUF file (version 3). Not here: what keys mean, quantising."""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from engine.errors import BadModelFile
from engine.gguf import layout as lay
from engine.gguf.layout import quoted
from engine.gguf.reader import Value
from engine.quants.registry import by_name


class Stretch(Protocol):
    """Data that is fetched while it is written: its bytes in all, and they piece by piece."""

    def __len__(self) -> int: ...
    def chunks(self) -> Iterable[bytes | memoryview]: ...


# (name, dims with the contiguous dimension first, type name, data)
Tensor = tuple[str, Sequence[int], str, bytes | memoryview | Stretch]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Value],
    tensors: Sequence[Tensor],
    kinds: Mapping[str, str] | None = None,
) -> Path:
    """Write whole and then rename, so that nobody meets half a file; returns the path.

    `kinds` (as `GgufFile.kinds`) fixes a key's kind; else int is uint32 (or the first of int32, uint64, int64 that
    holds it), float is float32, and a list of ints is int32. `general.alignment` in the metadata is obeyed.
    """
    path = Path(path)
    alignment = metadata.get("general.alignment", lay.DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
        raise BadModelFile(f"general.alignment {alignment!r}: a power of two from 8 is expected")
    spare = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with spare.open("wb") as file:
            n_header = 0
            for piece in _header(metadata, tensors, kinds or {}, alignment):
                file.write(piece)
                n_header += len(piece)
            file.write(bytes(lay.padded(n_header, alignment) - n_header))
            for _, _, _, data in tensors:
                for chunk in (data,) if isinstance(data, bytes | memoryview) else data.chunks():
                    file.write(chunk)
                file.write(bytes(lay.padded(len(data), alignment) - len(data)))
        spare.replace(path)
    finally:
        spare.unlink(missing_ok=True)
    return path


def _header(
    metadata: Mapping[str, Value], tensors: Sequence[Tensor], kinds: Mapping[str, str], alignment: int
) -> Iterator[bytes]:
    yield lay.MAGIC + lay.COUNTS.pack(3, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind = kinds.get(key) or _kind_of(value)
        number = lay.ARRAY if kind.startswith("array") else _number(kind)
        yield _string(key) + lay.U32.pack(number) + _packed(value, kind)
    offset = 0
    for name, dims, type_name, data in tensors:
        _check_size(name, dims, type_name, len(data))
        yield _string(name) + lay.U32.pack(len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        yield lay.ARRAY_HEAD.pack(by_name(type_name).id, offset)
        offset += lay.padded(len(data), alignment)


def _check_size(name: str, dims: Sequence[int], type_name: str, n_bytes: int) -> None:
    n_rows = 1
    for dim in dims[1:]:
        n_rows *= dim
    wanted = by_name(type_name).tensor_bytes(n_rows, dims[0])
    if n_bytes != wanted:
        shape = f"{quoted(name)} {tuple(dims)} {type_name}"
        raise BadModelFile(f"tensor {shape} comes with {n_bytes:,} bytes; {wanted:,} are expected")


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return lay.U64.pack(len(data)) + data


def _number(kind: str) -> int:
    if kind not in lay.KIND_OF_NAME:
        raise BadModelFile(f"kind {quoted(kind)} is none of {', '.join(lay.KIND_OF_NAME)}")
    return lay.KIND_OF_NAME[kind]


def _kind_of(value: Value) -> str:
    if isinstance(value, list):
        if not value or all(type(v) is int and -(1 << 31) <= v < 1 << 31 for v in value):
            return "array[int32]"
        kinds = {_kind_of(v) for v in value}
        if any(kind.startswith("array") for kind in kinds):
            kinds = {"array"}
        if len(kinds) != 1:
            raise BadModelFile(f"an array of {', '.join(sorted(kinds))} cannot be written; one kind is expected")
        return f"array[{kinds.pop()}]"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, float):
        return "float32"
    for kind, low, high in (("uint32", 0, 32), ("int32", 31, 31), ("uint64", 0, 64), ("int64", 63, 63)):
        if -(1 << low) * (low > 0) <= value < 1 << high:
            return kind
    raise BadModelFile(f"the number {value} fits no GGUF kind")


def _packed(value: Value, kind: str) -> bytes:
    if isinstance(value, list):
        inner = kind.removeprefix("array[").removesuffix("]")
        head = lay.ARRAY_HEAD.pack(_number(inner), len(value))
        if inner in ("string", "array"):
            return head + b"".join(_packed(v, _kind_of(v) if inner == "array" else inner) for v in value)
        letter = lay.KINDS[_number(inner)][1]
        return head + struct.pack(f"<{len(value)}{letter}", *value)
    if isinstance(value, str):
        return _string(value)
    return struct.pack("<" + lay.KINDS[_number(kind)][1], value)
