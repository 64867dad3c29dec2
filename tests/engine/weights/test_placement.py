"""Repacking to panels and leaving things where they are: every row, the padded last ones, progress, mlock."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from engine.budget import MIB
from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from engine.quants.registry import TYPES
from engine.weights.placement import STRETCH, place_mapped, place_resident
from engine.weights.store import Store
from tests.blocks import quantise
from tests.heavy import heavy_llama

K, N = 256, 29  # three whole panels and five rows more


@pytest.fixture(params=list(TYPES))
def store(request, tmp_path):
    values = np.random.default_rng(5).standard_normal((N, K)).astype(np.float32)
    tensors = [(f"m{i}", (K, N), request.param, quantise(values + i, request.param)) for i in range(3)]
    opened = Store(read_gguf(write_gguf(tmp_path / "some.gguf", {"general.architecture": "llama"}, tensors)))
    for i in range(3):
        opened.matrix(f"m{i}", K, N)
    yield opened
    opened.close()


def bytes_at(address: int, n: int) -> bytes:
    return ctypes.string_at(address, n)


def packed(matrix, rows: bytes) -> bytes:
    """Eight rows to a panel by the format's own `pack`, one panel at a time."""
    source, out = np.frombuffer(rows, np.uint8).copy(), np.zeros(matrix.panel_bytes, np.uint8)
    matrix.quant.pack(source.ctypes.data, matrix.blocks, out.ctypes.data)
    return out.tobytes()


def test_resident_panels_hold_every_row_and_zeros_behind_the_last(store):
    reports = []
    arena = place_resident(store, 2, lambda done, total: reports.append((done, total)))
    for matrix in store.matrices:
        info = store.gguf.tensors[matrix.name]
        raw = bytes(store.bytes[info.offset : info.offset + info.n_bytes]).ljust(4 * matrix.panel_bytes, b"\0")
        want = b"".join(packed(matrix, raw[p * matrix.panel_bytes :][: matrix.panel_bytes]) for p in range(4))
        assert bytes_at(matrix.address, 4 * matrix.panel_bytes) == want
        assert matrix.body is matrix.quant.panels and matrix.address % 64 == 0
    assert reports[-1][0] == reports[-1][1] == sum(4 * m.panel_bytes for m in store.matrices)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert arena.n_bytes >= reports[-1][1]


def resident(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def test_a_load_takes_the_panels_and_a_few_megabytes_never_the_file_twice(tmp_path):
    store = Store(read_gguf(heavy_llama(tmp_path / "heavy.gguf")))
    for info in store.gguf.tensors.values():
        if len(info.dims) == 2:
            store.matrix(info.name, *info.dims)
    begin = {name: resident(name) for name in ("RssFile", "RssAnon")}
    files, dones = [], []

    def look(done: int, total: int) -> None:
        files.append(resident("RssFile") - begin["RssFile"])
        dones.append((done, total))

    arena = place_resident(store, 2, look)
    assert dones[0][0] == 0 and dones[-1][0] == dones[-1][1] >= 100 * MIB
    assert max(files) <= 4 * STRETCH, "two threads hold a stretch each, and the one before it at most"
    assert arena.n_bytes - 16 * MIB <= resident("RssAnon") - begin["RssAnon"] <= arena.n_bytes + 16 * MIB
    store.close()


def test_mapped_weights_stay_and_only_the_ragged_end_is_copied(store):
    assert place_mapped(store, lock=False) == ""
    for matrix in store.matrices:
        assert matrix.address == matrix.source and matrix.body is matrix.quant.rows
        assert matrix.tail is not None
        end = matrix.source + 3 * matrix.panel_bytes
        five = 5 * matrix.panel_bytes // 8
        assert bytes_at(matrix.tail.address, matrix.panel_bytes) == bytes_at(end, five).ljust(matrix.panel_bytes, b"\0")


def test_a_refused_lock_is_a_note_that_says_what_to_raise(store, monkeypatch):
    """A container without the limit: the model still loads, and the note names `ulimit -l`."""

    class Refusing:
        def mlock(self, *_: object) -> int:
            ctypes.set_errno(12)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing())
    assert "memlock limit (ulimit -l)" in place_mapped(store, lock=True)
