"""What transformers said of each family's tiny model, as kept in tests/vectors/families. Not here: asking it."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peer_logits import Question
from tests.families import FAMILIES
from tests.families.convert import draw_checkpoint, write_family
from tests.families.family import F32, N_VOCAB, Weights
from tests.tiny import SPECIALS, byte_alphabet

FOLDER = Path(__file__).parent.parent / "vectors" / "families"
# More than any window of the rows, and no multiple of a page.
N_IDS = 72


def ids_of(n: int = N_IDS, seed: int = 7) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, N_VOCAB, n)]


def question(path: Path, ids: list[int], kv: str = "f16", ends: Iterable[int] = ()) -> Question:
    """What llama.cpp is asked of a row's file: its distribution after each of `ids`, or after the first of `ends`."""
    letter = len(SPECIALS) + list(byte_alphabet()).index(ord("a"))
    return Question(str(path), ids, list(ends) or list(range(1, len(ids) + 1)), N_VOCAB, letter, kv)


@dataclass(frozen=True)
class Truth:
    """`shapes` of the checkpoint's tensors by name, and what is kept of the logits after each of `ids_of()`.

    `logits`: float32 (N_IDS, N_VOCAB / 2), every other one, of the ids that are even or odd as the position is. They
    are kept as int16 steps of their largest magnitude: an error of at most 1e-4 of their standard deviation.
    """

    shapes: dict[str, tuple[int, ...]]
    logits: F32
    digest: str

    @property
    def spread(self) -> float:
        """The standard deviation of all logits."""
        return float(self.logits.std())

    def apart(self, found: F32, positions: Sequence[int] = range(N_IDS), *, is_shifted: bool = False) -> float:
        """The largest difference of logits (len(positions), N_VOCAB) to the truth, as a share of the spread.

        is_shifted: a constant for each position does not count, as between logits and log-probabilities.
        """
        far = halved(found, positions) - self.logits[list(positions)]
        if is_shifted:
            far = far - far.mean(axis=1, keepdims=True)
        return float(np.abs(far).max() / self.spread)


def halved(logits: F32, positions: Sequence[int] = range(N_IDS)) -> F32:
    """Of a row for each position, the logits that are kept."""
    return np.stack([row[position % 2 :: 2] for position, row in zip(positions, logits, strict=True)])


def load(name: str) -> Truth:
    """The truth of a row; FileNotFoundError where benchmarks/transformers_families.py has not made it."""
    with np.load(FOLDER / f"{name}.npz") as kept:
        about = json.loads(kept["about"].tobytes())
        logits = kept["steps"].astype(np.float32) * np.float32(about["step"])
    return Truth({tensor: tuple(shape) for tensor, shape in about["shapes"].items()}, logits, about["sha256"])


def save(name: str, weights: Weights, logits: F32, provenance: dict[str, str]) -> None:
    """Keep half the logits and the shapes, and the SHA-256 of the weights instead of them."""
    kept = halved(logits)
    step = float(np.abs(kept).max()) / 32767
    steps: NDArray[np.int16] = np.round(kept / step).astype(np.int16)
    shapes = {tensor: list(values.shape) for tensor, values in weights.items()}
    about = {"step": step, "shapes": shapes, "sha256": digest(weights)} | provenance
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FOLDER / f"{name}.npz", steps=steps, about=np.frombuffer(json.dumps(about).encode(), np.uint8))


def digest(weights: Weights) -> str:
    """SHA-256 over the values of all tensors in the order of their names."""
    whole = hashlib.sha256()
    for tensor in sorted(weights):
        whole.update(np.ascontiguousarray(weights[tensor]).tobytes())
    return whole.hexdigest()


def write(name: str, path: Path, quant: str = "F32", *, for_peer: bool = False) -> Truth:
    """Write the row's model to `path` and return its truth; AssertionError if numpy draws other weights now."""
    truth = load(name)
    weights = draw_checkpoint(FAMILIES[name], truth.shapes)
    assert digest(weights) == truth.digest, f"{name}: numpy draws other weights than when transformers was asked"
    write_family(path, FAMILIES[name], weights, quant, for_peer=for_peer)
    return truth
