"""Texts that begin like others: found without being told, the same bits, no page lost, none read twice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from appliance.machine.host import read_machine
from engine.cache.prefix import MOST
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.sequence import Sequence
from tests.families.stored import write
from tests.tiny import tiny_llama

HOT = Sampling(temperature=1.0, seed=3)
N_CTX = 1024


def loaded(path: Path, *, keeps: bool = True, n: int = 1, **options: object) -> Engine:
    chosen = EngineOptions(n_ctx=N_CTX, ubatch_size=64, n_parallel=n, cache_prompt=keeps, **options)  # type: ignore[arg-type]
    return load_engine(path, chosen, read_machine())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("prefix") / "m.gguf", n_ctx=N_CTX)


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    made = loaded(path)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[Engine]:
    """Keeps nothing: what every text must give."""
    made = loaded(path, keeps=False)
    yield made
    made.shutdown()


def ids_of(n: int, seed: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, 272, n)]


def run(engine: Engine, seq: Sequence) -> list[int]:
    while seq.finish is None:
        engine.step(seq)
    engine.close(seq)
    return seq.made


def answer(engine: Engine, ids: list[int], n: int = 12) -> tuple[list[int], int]:
    """Tokens made, prompt tokens that were not read."""
    seq = engine.open(ids, HOT, n)
    cached = seq.n_cached
    return run(engine, seq), cached


def held(engine: Engine) -> int:
    return engine._m.kv.n_pages - engine._m.kv.n_free


def test_the_second_turn_of_a_chat_reads_what_is_new(engine: Engine, alone: Engine) -> None:
    first = ids_of(300, 1)
    made, cached = answer(engine, first)
    assert cached == 0 and made == answer(alone, first)[0]
    second = [*first, *made, *ids_of(40, 2)]
    again, cached = answer(engine, second)
    assert cached == 300 + 11  # the last token was made and never read
    assert again == answer(alone, second)[0]


def test_a_prompt_that_was_read_is_not_read_again_but_for_its_last_token(engine: Engine, alone: Engine) -> None:
    ids = ids_of(400, 3)
    whole = answer(engine, ids)
    assert answer(engine, ids) == (whole[0], 399) == (answer(alone, ids)[0], 399)


def test_one_instruction_and_many_rows(engine: Engine, alone: Engine) -> None:
    instruction = ids_of(270, 4)
    for row in range(6):
        ids = [*instruction, *ids_of(30, 100 + row)]
        made, cached = answer(engine, ids)
        assert made == answer(alone, ids)[0] and cached == (270 if row else 0)


def test_what_is_kept_makes_room_for_what_runs(engine: Engine, alone: Engine) -> None:
    """A context of four pages: texts of three cannot both stay, and nobody is refused."""
    for seed in range(5):
        ids = ids_of(700, 200 + seed)
        assert answer(engine, ids) == (answer(alone, ids)[0], 0)
        assert held(engine) <= 4 and len(engine._m.kv.sequences) == 0
    assert answer(engine, ids_of(700, 204))[1] == 699
    assert answer(engine, ids_of(700, 203))[1] == 0


def test_a_text_that_was_left_early_is_kept_as_far_as_it_was_read(engine: Engine, alone: Engine) -> None:
    ids = ids_of(500, 5)
    seq = engine.open(ids, HOT, 5)
    for _ in range(3):  # of 64 rows each
        engine.step(seq)
    engine.close(seq)
    engine.close(seq)
    assert answer(engine, ids) == (answer(alone, ids)[0], 192)


def test_any_tree_of_texts_gives_what_each_gives_alone(engine: Engine, alone: Engine) -> None:
    rng = np.random.default_rng(6)
    seen: list[list[int]] = [ids_of(20, 7)]
    n_cached = 0
    for i in range(60):
        stem = seen[int(rng.integers(len(seen)))]
        ids = [*stem[: int(rng.integers(1, len(stem) + 1))], *ids_of(int(rng.integers(1, 120)), 1000 + i)][: N_CTX - 20]
        made, cached = answer(engine, ids, 6)
        assert made == answer(alone, ids, 6)[0], i
        seen.append([*ids, *made])
        n_cached += cached
        assert len(engine._m.prefixes.texts) <= MOST  # type: ignore[union-attr]
    assert n_cached > 500
    while engine._m.kv.spare():
        pass
    assert held(engine) == 0


def test_of_several_that_begin_the_same_the_first_reads_for_all(path: Path, alone: Engine) -> None:
    several = loaded(path, n=4)
    instruction = ids_of(300, 8)
    prompts = [[*instruction, *ids_of(20 + i, 300 + i)] for i in range(4)]
    sequences = [several.open(ids, HOT, 8) for ids in prompts]
    while any(s.finish is None for s in sequences):
        several.step_many([s for s in sequences if s.finish is None])
    assert [s.n_cached for s in sequences] == [0, 300, 300, 300]
    assert [s.made for s in sequences] == [answer(alone, ids, 8)[0] for ids in prompts]
    for s in sequences:
        several.close(s)
    several.shutdown()


def test_who_waits_goes_on_when_the_reader_leaves(path: Path, alone: Engine) -> None:
    several = loaded(path, n=2)
    ids = ids_of(400, 9)
    first, second = several.open([*ids, 5], HOT, 4), several.open([*ids, 6], HOT, 4)
    several.step_many([first, second])
    assert second.n_read == 0 and first.n_read == 64
    several.close(first)
    assert run(several, second) == answer(alone, [*ids, 6], 4)[0]
    several.shutdown()


def test_a_window_is_used_again_by_what_goes_on_at_its_end(tmp_path: Path) -> None:
    """Gemma's layers with a window of 24 have given back what lies far behind."""
    write("gemma3", tmp_path / "m.gguf")
    keeps, fresh = (loaded(tmp_path / "m.gguf", keeps=keeps) for keeps in (True, False))
    ids = ids_of(900, 10)
    made, _ = answer(keeps, ids, 5)
    for stem, cached in (([*ids, *made], 904), (ids[:400], 0)):
        prompt = [*stem, *ids_of(30, 11)]
        assert answer(keeps, prompt, 5) == (answer(fresh, prompt, 5)[0], cached)
    keeps.shutdown()
    fresh.shutdown()
