"""Closed sets of continuations: each option's probability equals what forcing it alone gives, to the bit."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.budget import Machine
from engine.errors import ContextLengthExceeded, InvalidParameter
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.score import Scored, beginning, chains, ln_p
from tests.tiny import tiny_llama

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
TEXT = [(i * 37 + 5) % 300 for i in range(70)]
SETS = {
    "one token each": ((7,), (9,), (11,)),
    "a tree": ((7, 8, 9), (7, 8, 10), (7, 11), (12, 13, 14, 15), (12, 13, 14, 16), (20,)),
    "one begins another": ((7,), (7, 8), (7, 8, 9)),
    "a common beginning": ((5, 6, 7, 8), (5, 6, 9), (5, 6, 10, 11)),
    "a single one": ((3, 4, 5),),
    "twice the same": ((3, 4), (3, 4), (5,)),
    "a long one": (tuple(range(40, 80)), tuple(range(40, 79)), (1,)),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", n_ctx=512)


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    engine = load_engine(model, EngineOptions(512, 2, 2, n_parallel=4, ubatch_size=64, spec_type="none"), MACHINE)
    yield engine
    engine.shutdown()


def forced(engine: Engine, ids: list[int], option: tuple[int, ...], ends: frozenset[int]) -> float:
    """The option alone behind the text, every token by the logits before it."""
    rows = list(engine.logit_rows([*ids, *option]))[len(ids) - 1 :]
    parts = [ln_p(row, (token,)) for row, token in zip(rows, option, strict=False)]
    return math.fsum([*parts, ln_p(rows[-1], ends)] if ends else parts)


def finished(engine: Engine, *sequences: Scored) -> list[list[float]]:
    left = list(sequences)
    while left:
        engine.step_many(left)
        left = [seq for seq in left if seq.finish is None]
    for seq in sequences:
        assert seq.failure is None
        engine.close(seq)
    return [seq.scores for seq in sequences]


@pytest.mark.parametrize("ends", [frozenset(), frozenset({2, 100})], ids=["open", "ended"])
@pytest.mark.parametrize("options", SETS.values(), ids=SETS)
def test_a_set_scores_as_each_option_alone(
    engine: Engine, options: tuple[tuple[int, ...], ...], ends: frozenset[int]
) -> None:
    [scores] = finished(engine, engine.score(TEXT, options, ends))
    assert scores == [forced(engine, TEXT, option, ends) for option in options]


def test_a_common_beginning_can_be_left_out(engine: Engine) -> None:
    for options in (SETS["a common beginning"], SETS["a tree"]):
        n = len(beginning(options))
        [scores] = finished(engine, engine.score(TEXT, options, is_relative=True))
        text, tails = [*TEXT, *options[0][:n]], [option[n:] for option in options]
        assert scores == [forced(engine, text, tail, frozenset()) for tail in tails]
    [scores] = finished(engine, engine.score(TEXT, SETS["one begins another"], frozenset({2}), is_relative=True))
    assert scores == [forced(engine, TEXT, option, frozenset({2})) for option in SETS["one begins another"]]


def test_what_ln_p_says_is_the_softmax(engine: Engine) -> None:
    row = next(iter(engine.logit_rows([5])))
    wide = row.astype(np.float64)
    exact = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    for token in (0, 7, 299):
        assert ln_p(row, (token,)) == pytest.approx(exact[token], abs=2e-6)
    assert ln_p(row, range(len(row))) == pytest.approx(0.0, abs=2e-6)


def test_company_and_answers_beside_it_change_no_bit(engine: Engine) -> None:
    alone = [finished(engine, engine.score(TEXT[:n], SETS["a tree"]))[0] for n in (70, 33)]
    talking = engine.open(TEXT[:20], Sampling(temperature=0.0), 200)
    scored = [engine.score(TEXT[:n], SETS["a tree"]) for n in (70, 33)]
    while any(seq.finish is None for seq in scored):
        engine.step_many([talking, *(seq for seq in scored if seq.finish is None)])
    assert [seq.scores for seq in scored] == alone
    words = talking.made[:]
    for seq in (talking, *scored):
        engine.close(seq)
    again = engine.open(TEXT[:20], Sampling(temperature=0.0), 200)
    while len(again.made) < len(words):
        engine.step(again)
    assert again.made[: len(words)] == words
    engine.close(again)


def test_what_finds_no_room_or_is_nothing_is_refused(engine: Engine) -> None:
    with pytest.raises(ContextLengthExceeded, match="longest option have 520 tokens"):
        engine.score(TEXT * 7, [(1,) * 30])
    with pytest.raises(InvalidParameter, match="an option has 65 tokens"):
        engine.score(TEXT, [(1,) * 65])
    with pytest.raises(InvalidParameter, match="no tokens"):
        engine.score(TEXT, [()])


def test_what_has_to_be_read_holds_every_beginning_that_a_token_hangs_from_once() -> None:
    assert chains(SETS["one token each"], False) == []
    assert chains(SETS["a tree"], False) == [(7, 8), (12, 13, 14)]
    assert chains(SETS["a common beginning"], False) == [(5, 6), (5, 6, 7), (5, 6, 10)]
    assert chains(SETS["one begins another"], True) == [(7,), (7, 8, 9)]
    assert beginning(SETS["a tree"]) == () and beginning(SETS["a single one"]) == (3, 4, 5)
