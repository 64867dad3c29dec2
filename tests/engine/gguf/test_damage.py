"""Random damage to headers: whatever the bytes, a reader answers with a shape or with our own error, and soon."""

import random
import struct
from pathlib import Path

import pytest

from engine.errors import ColibriError
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from tests import raw_gguf as raw

ODD = (0, 1, 2, 7, 9, 0x7F, 0x80, 0xFF)
WIDE = (0, 1, 31, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 32)


def damaged(good: bytes, n_header: int, rng: random.Random) -> bytes:
    """One to four wounds: a byte, an odd number over eight bytes, a cut, a piece copied elsewhere."""
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(n_header, max(1, len(data))))
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = rng.choice(ODD)
        elif kind == 1:
            data[at : at + 8] = struct.pack("<Q", rng.choice(WIDE))
        elif kind == 2:
            data[at : at + 4] = struct.pack("<I", rng.choice(WIDE) & 0xFFFFFFFF)
        elif kind == 3 and rng.random() < 0.3:
            del data[at:]
        else:
            n = rng.randint(1, 40)
            to = rng.randrange(min(n_header, max(1, len(data))))
            data[to : to + n] = data[at : at + n]
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_brings_anything_but_our_own_error(seed: int, tmp_path: Path) -> None:
    model = raw.llama(n_layers=1, n_vocab=8)
    good, n_header = model.bytes(), len(model.bytes()) - len(model.data)
    rng = random.Random(seed)
    path = tmp_path / "m.gguf"
    n_read = 0
    for _ in range(600):
        path.write_bytes(damaged(good, n_header, rng))
        try:
            gguf = read_gguf(path)
            n_read += 1
            for t in gguf.tensors.values():
                assert gguf.data_offset <= t.offset and t.offset + t.n_bytes <= gguf.n_bytes
            DecoderShape.read(gguf)
        except ColibriError as error:
            assert str(error).isprintable(), ascii(str(error))
    assert 10 < n_read < 590, "the damage should be neither always nor never fatal"
