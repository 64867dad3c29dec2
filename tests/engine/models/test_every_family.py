"""What holds for every registered family: one set of bits in every way it can be computed and stored.

Not here: whether the logits are right (test_families.py), memory (test_footprint.py), every type (test_identity.py).
"""

from pathlib import Path

import pytest

from benchmarks.identity import Verdict, Way, prompts
from engine.models.registry import ARCHITECTURES
from tests.families import FAMILIES
from tests.families.family import N_VOCAB
from tests.families.stored import write

# One of each architecture.
ROWS = {row.arch: name for name, row in FAMILIES.items() if row.arch in ARCHITECTURES}
STREAM = Way(2, 64, "stream", pinned=1 << 14, ring=1 << 15, experts=1 << 16, is_rough=True)


@pytest.mark.parametrize("name", ROWS.values())
def test_panels_file_rows_and_a_stream_give_the_same_bits(name: str, tmp_path: Path) -> None:
    """In one chunk alone and in chunks of seven in company; longer than any window of the rows."""
    write(name, tmp_path / "m.gguf", "Q8_0")
    verdict = Verdict(tmp_path / "m.gguf", prompts(3, N_VOCAB, 100))
    verdict.check(Way(2, 7, "mmap", beside=2))
    verdict.check(STREAM)
    assert verdict.n_wrong == 0
