"""The way back: from the copy to the file it was made from, byte for byte. Not here: the way there (copy.py)."""

import hashlib
import io
from pathlib import Path
from typing import BinaryIO

from engine.errors import BadModelFile
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, parse_gguf
from engine.gguf.scattered import HEADER, PREFIX, is_scattered
from engine.relayout.copy import VERSION, places
from engine.relayout.source import Progress, Source
from engine.relayout.target import counter, new_file

ZEROS = bytes(1 << 16)


def write_back(copy: GgufFile, out: Path, on_progress: Progress) -> None:
    """Write the old file and compare its SHA-256; BadModelFile for a copy that is damaged."""
    name = quoted(copy.path.name, 120)
    if not is_scattered(copy):
        raise BadModelFile(f"{name} was not laid out by colibri relayout; there is no way back to go")
    version, n_bytes, n_header = (_number(copy, key) for key in ("version", "bytes", "header_bytes"))
    kept = copy.tensors.get(HEADER)
    if version != VERSION or kept is None or not 0 < n_header <= kept.n_bytes or not n_header < n_bytes < copy.n_bytes:
        raise BadModelFile(f"{name} lacks what the way back needs, or a newer Colibri has made it")
    with new_file(out, n_bytes) as part, Source(copy.path, counter(on_progress, "write", n_bytes)) as source:
        header = b"".join(source.chunks(kept.offset, n_header))
        old = _parsed(copy, header, n_bytes)
        with part.open("wb") as file:
            whole = _Hashing(file)
            whole.write(header)
            for tensor in sorted(old.tensors.values(), key=lambda t: t.offset):
                whole.fill(tensor.offset)
                for start, length in places(copy, tensor):
                    for chunk in source.chunks(start, length):
                        whole.write(chunk)
            whole.fill(n_bytes)
        if whole.digest() != copy.metadata.get(PREFIX + "sha256"):
            raise BadModelFile(f"{name} does not give back the file it was made from; it is damaged")


class _Hashing:
    """A file that is written from its start on, and hashed by the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._at = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._at += len(data)

    def fill(self, end: int) -> None:
        """Zeros up to `end`."""
        while self._at < end:
            self.write(ZEROS[: end - self._at])

    def digest(self) -> str:
        return self._hash.hexdigest()


def _parsed(copy: GgufFile, header: bytes, n_bytes: int) -> GgufFile:
    try:
        return parse_gguf(copy.path, io.BytesIO(header), n_bytes)
    except BadModelFile as error:
        raise type(error)(f"{quoted(copy.path.name, 120)}: the header it keeps is damaged: {error}") from None


def _number(copy: GgufFile, key: str) -> int:
    value = copy.metadata.get(PREFIX + key)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
