"""The map of the weights: what the page cache holds of a real file, bins, and a kernel that tells nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from appliance import residency
from appliance.residency import FRESH_S, Experts, Home, Part, Scan, Scanner, map_of
from engine.census import census
from engine.gguf.reader import read_gguf
from engine.models.registry import family
from engine.models.shape import DecoderShape
from engine.weights.placement import place_mapped, place_resident
from engine.weights.store import Store
from tests.tiny import tiny_llama
from tests.tiny_moe import tiny_qwen3moe

PAGE = 4096


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def store_of(path: Path) -> Store:
    gguf = read_gguf(path)
    shape = DecoderShape.read(gguf)
    store = Store(gguf)
    family(shape.architecture).Model(shape, store)
    return store


def cells(found: dict[str, Any]) -> Any:
    return found["cells"]


def test_a_resident_model_is_all_there_but_the_rows_that_are_looked_up(tmp_path: Path) -> None:
    store = store_of(tiny_llama(tmp_path / "tiny.gguf", n_layers=2))
    arena = place_resident(store, 1, lambda *_: None)
    homes = census(store, "resident")
    in_order = sorted(store.gguf.tensors.values(), key=lambda tensor: tensor.offset)
    assert [home.name for home in homes] == [tensor.name for tensor in in_order]
    assert all(home.n_bytes == store.gguf.tensors[home.name].n_bytes for home in homes)
    rest = {home.name: home.rest for home in homes if home.held_bytes < home.n_bytes}
    assert set(rest.values()) == {"mapped"} and {"token_embd.weight", "blk.0.attn_norm.weight"} <= set(rest)
    assert not any(".ffn_" in name and "norm" not in name for name in rest)
    store.close()
    del arena


@pytest.mark.parametrize(("mode", "rest"), [("mmap", "mapped"), ("mlock", "locked")])
def test_a_mapped_model_has_nothing_of_its_own(tmp_path: Path, mode: str, rest: str) -> None:
    store = store_of(tiny_llama(tmp_path / "tiny.gguf"))
    place_mapped(store, False)
    assert {(home.held_bytes, home.rest) for home in census(store, mode)} == {(0, rest)}
    store.close()


def test_each_expert_has_a_place_of_its_own(tmp_path: Path) -> None:
    path = tiny_qwen3moe(tmp_path / "moe.gguf")
    store = store_of(path)
    shape = DecoderShape.read(store.gguf)
    homes = [Home(*home) for home in census(store, "mmap")]
    store.close()
    experts = [home for home in homes if home.kind == "experts"]
    assert {home.parts for home in experts} == {shape.n_experts} and len(experts) == 3 * shape.n_layers
    scan = Scanner(Clock()).read(path, homes, "x")
    found = map_of(scan, "expert", 24, 64)
    assert (found["n_layers"], found["n_columns"]) == (shape.n_layers, shape.n_experts)
    assert found["columns"] == [[e, e] for e in range(shape.n_experts)]
    told = {cell for row in cells(found) for cell in row}
    assert told <= {None, 255}, "a file just written is in the page cache, where that is told"


def test_the_page_cache_is_asked_about_what_is_not_ours(tmp_path: Path) -> None:
    """A file of eight stretches, of which the kernel is made to forget the last four."""
    path, size = tmp_path / "weights", 256 * PAGE
    path.write_bytes(os.urandom(8 * size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 4 * size, 4 * size, os.POSIX_FADV_DONTNEED)
    homes = [Home(f"blk.{i}.attn_q.weight", "attention", i * size, size, 0, "mapped", 1) for i in range(8)]
    homes += [Home("blk.7.ffn_up.weight", "ffn", 0, size, size // 2, "streamed", 1)]
    scan = Scanner(Clock()).read(path, homes, "x")
    if scan.parts[0].memory is None:
        pytest.skip("this kernel has no cachestat")
    found = map_of(scan, "tensor", 24, 64)
    assert found["columns"] == [["attn_q"], ["ffn_up"]]
    assert [row[0] for row in cells(found)] == [255] * 4 + [0] * 4
    assert [row[1] for row in cells(found)] == [None] * 7 + [128], "a streamed half: the page cache is not asked"
    assert map_of(scan, "tensor", 2, 64)["cells"] == [[255, None], [0, 128]]
    assert found["groups"]["attention"] == {"bytes": 8 * size, "memory_bytes": 4 * size}


def test_what_is_not_told_is_null_in_cells_and_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "cached_bytes", lambda *_: None)
    homes = [Home("blk.0.attn_q.weight", "attention", 0, 10, 0, "mapped", 1),
             Home("blk.0.ffn_up.weight", "ffn", 10, 20, 20, "held", 1)]  # fmt: skip
    found = map_of(Scanner(Clock()).read(tmp_path / "none", homes, "x"), "tensor", 24, 64)
    assert cells(found) == [[None, 255]]
    assert found["groups"]["ffn"]["memory_bytes"] == 20
    assert found["groups"]["attention"]["memory_bytes"] is found["groups"]["total"]["memory_bytes"] is None


def test_a_scan_is_kept_for_some_seconds_and_for_one_load(tmp_path: Path) -> None:
    clock = Clock()
    scanner = Scanner(clock)
    first = scanner.read(tmp_path / "x", [], "a")
    clock.now += FRESH_S - 0.1
    assert scanner.read(tmp_path / "x", [], "a") is first and scanner.age_s(first) == pytest.approx(FRESH_S - 0.1)
    assert scanner.read(tmp_path / "x", [], "b") is not first
    clock.now += 0.2
    assert scanner.read(tmp_path / "x", [], "a") is not first


def test_a_model_without_layers_is_an_empty_map() -> None:
    scan = Scan((Part(None, "output", "output", None, 10, 10),), 0.0, 0.0)
    found = map_of(scan, "expert", 24, 64)
    assert (found["cells"], found["columns"], found["rows"]) == ([], [], [])
    assert found["others"] == [{"name": "output", "bytes": 10, "memory_bytes": 10}]


def test_what_the_engine_caches_it_tells_itself_with_its_heat(tmp_path: Path) -> None:
    """Two layers, the second and the fourth of the model, of four experts; a cached expert is there as a whole."""
    names = [f"blk.{layer}.ffn_{part}_exps.weight" for layer in (1, 3) for part in ("gate", "up", "down")]
    homes = [Home(name, "experts", 0, 400, 0, "cached", 4) for name in names]
    frame = {"shape": [2, 4], "held": "0001000101010000", "heat": "00ff0010203040ff"}
    told = map_of(Scanner(Clock()).read(tmp_path / "x", homes, "a", Experts.read(frame)), "expert", 24, 64)
    assert told["rows"] == [[1, 1], [3, 3]]
    assert cells(told) == [[0, 255, 0, 255], [255, 255, 0, 0]]
    assert told["heat"] == [[0, 255, 0, 16], [32, 48, 64, 255]]
    assert told["groups"]["experts"] == {"bytes": 2400, "memory_bytes": 1200}
    silent = map_of(Scanner(Clock()).read(tmp_path / "x", homes, "a", Experts.read(None)), "expert", 24, 2)
    assert silent["cells"] == silent["heat"] == [[None, None], [None, None]]
