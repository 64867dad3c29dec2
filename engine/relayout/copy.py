"""Writes the copy and proves it. Not here: which bytes go where (order.py), the way back (back.py), what it brings.

The copy is a GGUF file by every rule of the format: its tensors have names, dimensions and types of their own. Only
Colibri puts `blk.0.ffn_gate.3.weight` together again (gguf/scattered.py), so `colibri.relayout.*` keys say whose file
it is, and keep what the way back needs: the old header whole (as a tensor of bytes), the old size and SHA-256.

    hash the old file, every tensor, and that nothing hides between them → write → read the copy again, every tensor
    hashed as it lay in the old file → only now it gets its name
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.errors import BadModelFile
from engine.gguf.layout import padded, quoted
from engine.gguf.reader import GgufFile, TensorInfo, Value, read_gguf
from engine.gguf.scattered import HEADER, PREFIX
from engine.gguf.writer import Tensor, write_gguf
from engine.relayout.order import ALIGNMENT, Piece, expert_layers, ordered
from engine.relayout.source import Progress, Source, Stretch
from engine.relayout.target import RelayoutFailed, counter, new_file, settled
from engine.weights.heat import Heat

VERSION = 1


def copy_bytes(gguf: GgufFile, pieces: Sequence[Piece]) -> int:
    """At least the bytes that the copy will have, and at most some KiB more."""
    entries = sum(len(p.name) + 8 * len(p.dims) + 24 for p in pieces)
    return 2 * gguf.data_offset + entries + sum(padded(p.n_bytes, ALIGNMENT) for p in pieces) + 3 * ALIGNMENT


def write_copy(gguf: GgufFile, heat: Heat, out: Path, on_progress: Progress) -> None:
    """Write the copy and prove it; BadModelFile for a file that could not come back, RelayoutFailed, UsageError."""
    pieces = ordered(gguf, expert_layers(gguf), heat)
    with new_file(out, copy_bytes(gguf, pieces)) as part:
        digest, hashes = _hashed(gguf, on_progress)
        _write(gguf, pieces, digest, part, on_progress)
        _prove(read_gguf(part), gguf, hashes, on_progress)


def places(copy: GgufFile, old: TensorInfo) -> Iterator[tuple[int, int]]:
    """Where the bytes of a tensor of the old file lie in the copy, in their old order: (offset, bytes) of each."""
    info = copy.tensors.get(old.name)
    if info is None or (info.type, info.dims) != (old.type, old.dims):
        raise BadModelFile(
            f"{quoted(copy.path.name, 120)} lacks the tensor {quoted(old.name)} as it was; it is damaged"
        )
    parts = info.parts or (info.offset,)
    for offset in parts:
        yield offset, info.n_bytes // len(parts)


def _hashed(gguf: GgufFile, on_progress: Progress) -> tuple[str, dict[str, str]]:
    """SHA-256 of the whole file and of each tensor; BadModelFile when there is more in it than header and tensors."""
    whole, found, at = hashlib.sha256(), {}, gguf.data_offset
    with Source(gguf.path, counter(on_progress, "hash", gguf.n_bytes)) as source:
        for chunk in source.chunks(0, gguf.data_offset):
            whole.update(chunk)
        for tensor in sorted(gguf.tensors.values(), key=lambda t: t.offset):
            _gap(gguf, source, at, tensor.offset, whole)
            one = hashlib.sha256()
            for chunk in source.chunks(tensor.offset, tensor.n_bytes):
                whole.update(chunk)
                one.update(chunk)
            found[tensor.name], at = one.hexdigest(), tensor.offset + tensor.n_bytes
        _gap(gguf, source, at, gguf.n_bytes, whole)
    return whole.hexdigest(), found


def _gap(gguf: GgufFile, source: Source, start: int, end: int, whole: "hashlib._Hash") -> None:
    for chunk in source.chunks(start, end - start):
        whole.update(chunk)
        if any(chunk):
            raise BadModelFile(
                f"{quoted(gguf.path.name, 120)} has bytes between or behind its tensors that belong to none of them;"
                " a copy could not be turned back"
            )


def _write(gguf: GgufFile, pieces: Sequence[Piece], digest: str, part: Path, on_progress: Progress) -> None:
    metadata: dict[str, Value] = {**gguf.metadata, "general.alignment": ALIGNMENT}
    metadata |= {
        PREFIX + "version": VERSION, PREFIX + "bytes": gguf.n_bytes, PREFIX + "sha256": digest,
        PREFIX + "header_bytes": gguf.data_offset,
    }  # fmt: skip
    kinds = gguf.kinds | {PREFIX + "bytes": "uint64", PREFIX + "header_bytes": "uint64"}
    with Source(gguf.path, counter(on_progress, "write", sum(p.n_bytes for p in pieces) + gguf.data_offset)) as source:
        header = b"".join(source.chunks(0, gguf.data_offset))
        header += bytes(padded(len(header), 4) - len(header))
        tensors: list[Tensor] = [(HEADER, (len(header) // 4,), "F32", header)]
        for p in pieces:
            data = Stretch(source, p.source.offset + p.start, p.n_bytes)
            tensors.append((p.name, p.dims, p.source.type.name, data))
        write_gguf(part, metadata, tensors, kinds)
    settled(part)


def _prove(copy: GgufFile, old: GgufFile, hashes: dict[str, str], on_progress: Progress) -> None:
    """Every tensor of the old file can be read from the copy as it was."""
    with Source(copy.path, counter(on_progress, "check", sum(t.n_bytes for t in old.tensors.values()))) as source:
        for tensor in old.tensors.values():
            one = hashlib.sha256()
            for start, n_bytes in places(copy, tensor):
                for chunk in source.chunks(start, n_bytes):
                    one.update(chunk)
            if one.hexdigest() != hashes[tensor.name]:
                raise RelayoutFailed(
                    f"{quoted(tensor.name)} reads otherwise from the copy than from the file; disk or memory is ill"
                )
