"""A row of each type unpacks to what the `gguf` package decodes from the same bytes (scripts/gguf_package.py)."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from engine.quants.registry import TYPES
from tests.engine.quants.samples import digest, sample

DIGESTS = json.loads((Path(__file__).resolve().parents[2] / "vectors" / "quants.json").read_text())


@pytest.mark.parametrize("kind", list(TYPES))
def test_every_code_and_scale_decodes_as_by_the_reference(kind: str) -> None:
    raw, unpack = sample(kind), importlib.import_module(TYPES[kind].module).unpack_row
    out = np.full((len(raw), raw.shape[1] * TYPES[kind].items), 7, np.float32)
    for r in range(len(raw)):
        unpack(raw.ctypes.data + r * raw[0].nbytes, raw.shape[1], out.ctypes.data + r * out[0].nbytes)
    assert digest(out) == DIGESTS[kind]


def test_a_digest_tells_a_changed_weight() -> None:
    values = np.ones((2, 32), np.float32)
    changed = values.copy()
    changed[1, 31] = np.nextafter(np.float32(1), np.float32(2))
    assert digest(values) != digest(changed)
