"""Names a model file without reading its weights. Not here: hashes of tensors (relayout/copy.py)."""

import hashlib

from engine.gguf.reader import GgufFile


def model_digest(gguf: GgufFile) -> str:
    """SHA-256 of the header and the file's size; for a model in several files, of the first header and all sizes."""
    h = hashlib.sha256(":".join(str(part.n_bytes) for part in gguf.parts).encode())
    with gguf.path.open("rb") as file:
        h.update(file.read(gguf.data_offset))
    return h.hexdigest()
