"""The forecast against traces drawn from the same heat and against the bytes of the written copy."""

import random

import pytest

from engine.gguf.reader import GgufFile, read_gguf
from engine.relayout.copy import write_copy
from engine.relayout.forecast import forecast
from engine.relayout.order import ALIGNMENT, PARTS, expert_layers
from engine.weights.heat import Heat, chances
from tests.engine.relayout.moe_file import moe_file

HEAT: Heat = [[8.0, 1.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 9.0]]
USED = 2


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[GgufFile, GgufFile]:
    folder = tmp_path_factory.mktemp("moe")
    source = read_gguf(moe_file(folder / "moe.gguf"))
    write_copy(source, HEAT, folder / "copy.gguf", lambda *told: None)
    return source, read_gguf(folder / "copy.gguf")


def blocks(start: int, n_bytes: int) -> set[int]:
    return {at // ALIGNMENT for at in range(start, start + n_bytes)}


def reads_now(source: GgufFile, layer: int, expert: int) -> list[int]:
    """Bytes of each read of whole blocks that this expert takes in the file as it came."""
    found = []
    for part in PARTS:
        info = source.tensors[f"blk.{layer}.ffn_{part}_exps.weight"]
        size = info.n_bytes // 5
        found.append(len(blocks(info.offset + expert * size, size)) * ALIGNMENT)
    return found


def reads_then(copy: GgufFile, layer: int, expert: int) -> list[int]:
    first, _, last = (copy.tensors[f"blk.{layer}.ffn_{part}_exps.weight"] for part in PARTS)
    start, end = first.parts[expert], last.parts[expert] + last.n_bytes // 5
    return [len(blocks(start, end - start)) * ALIGNMENT]


@pytest.mark.parametrize("n_cached", [0, 3, 8, 15])
def test_reads_and_bytes_are_those_of_a_long_trace(files: tuple[GgufFile, GgufFile], n_cached: int) -> None:
    source, copy = files
    layers = expert_layers(source)
    used = chances(HEAT, USED)
    size = layers[0].expert_bytes
    got = forecast(layers, HEAT, USED, n_cached * size + size // 2)
    every = [(used[i][e], i, e) for i in range(3) for e in range(5)]
    cached = {(i, e) for _, i, e in sorted(every, key=lambda one: (-one[0], one[1:]))[:n_cached]}
    rng, n_tokens, trace = random.Random(5), 4000, []
    for _ in range(n_tokens):
        trace += [(i, e) for chance, i, e in every if rng.random() < chance and (i, e) not in cached]
    numbers = {(i, e): (reads_now(source, layer.layer, e), reads_then(copy, layer.layer, e))
               for i, layer in enumerate(layers) for e in range(5)}  # fmt: skip
    now, then = [numbers[one][0] for one in trace], [numbers[one][1] for one in trace]
    assert got.cached_experts == n_cached
    for forecast_, measured in (
        (got.missed, len(trace)), (got.reads_before, sum(map(len, now))), (got.reads_after, sum(map(len, then))),
        (got.bytes_before, sum(map(sum, now))), (got.bytes_after, sum(map(sum, then))),
    ):  # fmt: skip
        assert forecast_ == pytest.approx(measured / n_tokens, rel=0.05, abs=1e-9)


def test_chances_are_shares_of_the_experts_a_token_uses() -> None:
    found = chances(HEAT, USED)
    assert found[0] == [1.0, 0.125, 0.125, 0.25, 0.5] and found[1] == [0.4] * 5
    assert found[2] == [0, 0, 0, 0, 1.0], "never more than once"
    assert chances([[0.0, 0.0]], 1) == [[0.5, 0.5]]


def test_one_read_takes_the_place_of_three(files: tuple[GgufFile, GgufFile]) -> None:
    got = forecast(expert_layers(files[0]), HEAT, USED, 0)
    assert got.reads_before == pytest.approx(3 * got.reads_after) and got.bytes_after < got.bytes_before
