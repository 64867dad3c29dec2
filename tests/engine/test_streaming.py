"""A model that is read from disk for every token: same bits, same words, and what happens when the file does not obey.

Not here: which part is pinned (weights/test_pinning.py), requests and readers (kernels/test_ring.py).
"""

import os
from pathlib import Path

import numpy as np
import pytest

from appliance.machine.pagecache import cached_share
from benchmarks.identity import MOST_BESIDE, Verdict, Way, every_type, prompts
from engine.budget import MIB, Machine
from engine.errors import BadModelFile, ReadFailed
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.weights import origin
from engine.weights.pinning import RING
from engine.weights.store import Store
from engine.weights.stream import place_streamed
from tests.engine.cancels import cancelled_while_waiting, pester
from tests.engine.weights.test_placement import resident
from tests.heavy import heavy_llama
from tests.tiny import tiny_llama

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
IDS = [5, 9, 100, 7]
KIB = 1024


def streamed(path: Path, threads: int = 2, pinned: int = 0, ring: int = 512 * KIB, mode: str = "stream"):
    options = EngineOptions(
        512, threads, threads, ubatch_size=64, load_mode=mode, spec_type="none", pinned_bytes=pinned, ring_bytes=ring
    )
    return load_engine(path, options, MACHINE)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "tiny.gguf", n_layers=3, n_vocab=331)


def test_no_pinned_share_no_ring_and_no_thread_count_changes_a_bit(tmp_path):
    """Every tensor type, in company, with sleeps in all threads, the readers' too, against panels on one thread."""
    verdict = Verdict(every_type(tmp_path / "tiny.gguf"), prompts(5, 320, 270))
    total = sum(t.n_bytes for t in read_gguf(verdict.path).tensors.values())
    for way in (
        Way(1, 512, "stream", pinned=0, ring=1),
        Way(2, 64, "stream", beside=MOST_BESIDE, is_rough=True, pinned=total // 2, ring=1 << 20),
        Way(3, 7, "stream", beside=2, is_rough=True, pinned=total // 5, ring=200_000),
        Way(2, 64, "stream", is_rough=True, pinned=total, ring=RING),
    ):
        verdict.check(way)
    assert verdict.n_wrong == 0


def test_sizes_that_fill_no_panel_are_streamed_too(tmp_path):
    model = tiny_llama(tmp_path / "odd.gguf", n_embd=96, n_heads=3, n_kv_heads=1, n_ff=224, n_vocab=331, tied=True)
    verdict = Verdict(model, prompts(3, 331, 70))
    for way in (Way(2, 64, "stream", ring=50_000), Way(2, 64, "stream", pinned=60_000, ring=1)):
        verdict.check(way)
    assert verdict.n_wrong == 0


def test_a_token_reads_what_is_not_pinned_and_no_more(model):
    engine = streamed(model, pinned=200_000, ring=64 * KIB)
    stream = engine._m.stream
    assert stream is not None and 150_000 < stream.split.pinned_bytes <= 200_000
    seq = engine.open(IDS, Sampling(temperature=0.0), 60)
    for _ in range(60):
        engine.step(seq)
    ahead = stream.split.n_slots * (stream.split.chunk_bytes + 8 * KIB)
    least = 60 * stream.split.streamed_bytes
    stream.readers.drain()
    readers = stream.readers
    assert least <= readers.n_bytes <= least + 60 * stream.n_chunks * 8 * KIB + ahead
    assert readers.busy_ns > 0 and readers.wait_ns > 0
    engine.shutdown()


@pytest.mark.parametrize("mode", ["stream", "mmap"])
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: os.truncate(path, 20_000), "was cut from"),
        (lambda path: os.utime(path, ns=(1, 1)), "was written to"),
        (lambda path: (path.with_name("b").write_bytes(path.read_bytes()), path.with_name("b").replace(path)),
         "was replaced by another one"),
        (lambda path: path.unlink(), "cannot be reached any more"),
    ],
    ids=["cut", "written", "replaced", "gone"],
)  # fmt: skip
def test_a_file_that_changes_ends_the_request_and_never_the_engine(model, harm, words, mode):
    aside = model.with_name("aside")
    os.link(model, aside)
    engine = streamed(model, mode=mode)
    seq = engine.open(IDS, Sampling(temperature=0.0), 60)
    made = [engine.step(seq).token for _ in range(5)]
    data, found = model.read_bytes(), os.stat(model)
    harm(model)
    for _ in range(2):
        with pytest.raises(ReadFailed, match=f"the model file tiny.gguf {words}"):
            engine.step(seq)
    assert seq.n_generated == 5 and engine._m.kv.sequences, "the step counted for nobody"
    # Put back as it was, byte for byte and second for second, it is the file that was loaded.
    aside.write_bytes(data)
    os.utime(aside, ns=(found.st_atime_ns, found.st_mtime_ns))
    aside.replace(model)
    assert engine.step(seq).token is not None
    engine.close(seq)
    fresh = engine.open(IDS, Sampling(temperature=0.0), 5)
    assert [engine.step(fresh).token for _ in range(5)] == made
    engine.shutdown()


@pytest.mark.parametrize("which", ["fd", "rows_fd"])
def test_a_disk_error_in_a_token_ends_the_request_and_never_the_engine(model, which):
    """The descriptor is exchanged for one that gives the kernel's own EIO, as a bad sector would: no page is mapped at
    the address that an offset in a model file stands for here."""
    engine = streamed(model)
    want = engine.last_logits(IDS)
    fd = getattr(engine._m.stream.origin, which)
    kept, unreadable = os.dup(fd), os.open("/proc/self/mem", os.O_RDONLY)
    for _ in range(3):
        os.dup2(unreadable, fd)
        # The ring has run ahead: what was read before the error is good, so a step may still go through.
        with pytest.raises(ReadFailed, match=r"reading the model file tiny\.gguf failed: input/output error"):
            for _ in range(3):
                engine.last_logits(IDS)
        os.dup2(kept, fd)
        assert np.array_equal(engine.last_logits(IDS), want)
    engine.shutdown()
    os.close(kept)
    os.close(unreadable)


def test_a_cancel_leaves_a_step_that_waits_for_the_disk(model):
    engine = streamed(model)
    seq = engine.open(IDS, Sampling(temperature=0.0), 5)
    engine.step(seq)
    assert cancelled_while_waiting(engine, seq).cancelled and seq.n_generated == 1
    engine.shutdown()


def test_cancels_at_any_moment_leave_the_stream_in_order(model):
    engine = streamed(model, pinned=100_000)
    want = engine.last_logits(IDS)
    pester(engine, lambda rng: IDS)
    assert np.array_equal(engine.last_logits(IDS), want)
    engine.shutdown()


def test_a_stream_holds_what_it_pins_and_its_ring_and_nothing_of_the_file(tmp_path):
    path = heavy_llama(tmp_path / "heavy.gguf")
    store = Store(read_gguf(path))
    for info in store.gguf.tensors.values():
        if len(info.dims) == 2:
            store.matrix(info.name, *info.dims)
    begin = {name: resident(name) for name in ("RssFile", "RssAnon")}
    dones: list[tuple[int, int]] = []
    stream = place_streamed(store, 40 * MIB, 16 * MIB, lambda *done: dones.append(done))
    for matrix in store.matrices:
        for span in matrix.spans:
            assert span.visit is None or span.visit().address
    stream.begin()
    stream.readers.finish()
    assert 30 * MIB < dones[-1][0] == dones[-1][1] == stream.split.pinned_bytes <= 40 * MIB
    assert resident("RssAnon") - begin["RssAnon"] <= 40 * MIB + 16 * MIB + 8 * MIB
    assert resident("RssFile") - begin["RssFile"] <= 8 * MIB
    stream.close()
    store.close()


@pytest.mark.parametrize("is_direct", [True, False])
def test_reading_leaves_the_page_cache_alone(tmp_path, monkeypatch, is_direct):
    path = heavy_llama(tmp_path / "heavy.gguf")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not is_direct:
        monkeypatch.setattr(origin, "_open_direct", lambda _path: -1)
    engine = streamed(path, pinned=30 * MIB, ring=16 * MIB)
    if engine._m.stream.origin.is_direct == is_direct:
        engine.last_logits(IDS)
        engine._m.stream.readers.drain()
        assert (cached_share(path) or 0.0) < 0.3, "two thirds of the file went through"
    engine.shutdown()


def test_a_file_cut_while_it_is_loaded_is_a_bad_file(model, monkeypatch):
    store = Store(read_gguf(model))
    store.matrix("output.weight", 128, 331)
    at = store.gguf.tensors["output.weight"].offset
    whole = os.preadv

    def cut(fd: int, buffers: list[memoryview], offset: int) -> int:
        return min(whole(fd, buffers, offset), max(0, at + 4096 - offset))

    monkeypatch.setattr(os, "preadv", cut)
    n_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadModelFile, match="ends too early"):
        place_streamed(store, 1 << 20, RING, lambda *_: None)
    assert len(os.listdir("/proc/self/fd")) == n_open
    store.close()
