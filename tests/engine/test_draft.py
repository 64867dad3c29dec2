"""Answers with a draft model are the answers without, whatever it says. Not here: lookup (test_speculate.py)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.draft import TRY_AGAIN, DraftModel
from engine.errors import DoesNotFit, EngineFailed, UsageError
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.meter import PassTimes
from engine.planner import Machine
from engine.sampling import Sampling
from engine.sequence import StepOut
from engine.speculate import drafts_with_model
from tests.engine.answers import all_of, without_noise
from tests.tiny import tiny_llama, tiny_mixed

MACHINE = Machine(
    memory_available=8 << 30, memory_limit=None, physical_cores=2, cpu_mask=(0, 1), cpu_quota=None
)  # fmt: skip
GREEDY = Sampling(temperature=0.0)
HOT = Sampling(temperature=0.9, top_k=0, top_p=0.98, min_p=0.0, repeat_penalty=1.05, seed=9)
RNG = np.random.default_rng(4)
PROMPTS = [[int(i) for i in RNG.integers(0, 280, n)] for n in (40, 1, 300, 7)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny_mixed(folder / "large.gguf")
    tiny_mixed(folder / "other.gguf", seed=5, n_layers=1)
    tiny_llama(folder / "short.gguf", n_vocab=300, n_layers=1)
    return folder


def engine(folder: Path, draft: str | None = None, **options: object) -> Engine:
    asked: dict[str, Any] = {"threads": 2, "threads_batch": 2, "n_parallel": 4, "ubatch_size": 64, **options}
    if draft:
        asked["spec_draft_model"] = str(folder / draft)
    return without_noise(load_engine(folder / "large.gguf", EngineOptions(**asked), MACHINE))


@pytest.fixture(scope="module")
def plain(folder):
    e = engine(folder)
    yield e
    e.shutdown()


@pytest.mark.parametrize("draft", ["large.gguf", "other.gguf", "short.gguf"])
def test_same_tokens_and_logprobs_with_a_good_a_bad_and_a_narrow_draft_model(folder, plain, draft):
    e = engine(folder, draft)
    assert (e.info.spec_type, plain.info.spec_type) == ("draft-simple", "none")
    asked = [(prompt, sampling) for prompt in PROMPTS for sampling in (GREEDY, HOT)]
    drafted = accepted = 0
    for prompt, sampling in asked:
        (want,), n_plain = all_of(plain, [plain.open(prompt, sampling, 40, n_logprobs=2)])
        seq = e.open(prompt, sampling, 40, n_logprobs=2)
        (got,), n_steps = all_of(e, [seq])
        assert got == want and n_plain - n_steps == seq.n_accepted
        drafted, accepted = drafted + seq.n_drafted, accepted + seq.n_accepted
    if draft == "large.gguf":
        assert accepted == drafted > 250, "the same model guesses right, sampled too"
    else:
        assert drafted > accepted
    for one in (asked[:4], asked[4:]):
        want, _ = all_of(plain, [plain.open(*ask, 20) for ask in one])
        assert all_of(e, [e.open(*ask, 20) for ask in one])[0] == want
    for some in (e, e._m.keep[-1]):
        assert some._m.kv.n_free == some._m.kv.n_pages and not some._m.kv.sequences
    e.shutdown()


def test_answers_up_to_the_end_of_the_context_and_of_few_rows(folder, plain):
    e = engine(folder, "large.gguf", n_ctx=256, ubatch_size=3)
    prompt = [9, 8, 7] * 80
    want = all_of(plain, [plain.open(prompt, HOT, 16)])[0]
    assert all_of(e, [e.open(prompt, HOT, 1000)])[0] == want
    e.shutdown()


def test_a_cancelled_step_keeps_what_was_guessed(folder, plain):
    e = engine(folder, "other.gguf")
    (want,), _ = all_of(plain, [plain.open(PROMPTS[0], GREEDY, 30)])
    seq, made, n_cancelled = e.open(PROMPTS[0], GREEDY, 30), [], 0
    while seq.finish is None:
        if n_cancelled < 15 and len(made) % 2:
            e.cancel()
        out = e.step(seq)
        n_cancelled += out.cancelled
        made += [one.token for one in (out, *out.more) if one.token is not None]
    assert n_cancelled == 15 and made == [token for token, *_ in want]
    e.close(seq)
    e.shutdown()


def test_a_draft_model_of_another_vocabulary_is_refused_before_any_weight_is_read(folder, tmp_path):
    words = read_gguf(folder / "large.gguf").metadata["tokenizer.ggml.tokens"]
    assert isinstance(words, list)
    tiny_llama(tmp_path / "else.gguf", **{"tokenizer.ggml.tokens": [*words[:7], "other", *words[8:]]})
    options = EngineOptions(spec_draft_model=str(tmp_path / "else.gguf"))
    with pytest.raises(UsageError, match=r"'else.gguf' has another vocabulary: token 7 is 'other' there"):
        load_engine(folder / "large.gguf", options, MACHINE)


def test_the_plan_leaves_room_for_the_draft_model(folder):
    from engine.footprint import ModelFacts
    from engine.models.shape import DecoderShape
    from engine.planner import PlanRequest, plan
    from engine.planner.beside import draft_bytes

    gguf, draft = read_gguf(folder / "large.gguf"), read_gguf(folder / "other.gguf")
    request = PlanRequest(n_ctx=512, threads=2)
    taken = draft_bytes(ModelFacts.of(draft, DecoderShape.read(draft)), request, 2)
    assert taken > sum(t.n_bytes for t in draft.tensors.values())
    with_draft = replace(request, beside_bytes=taken)
    alone = plan(gguf, DecoderShape.read(gguf), MACHINE, request)
    beside = plan(gguf, DecoderShape.read(gguf), MACHINE, with_draft)
    assert alone.budget_bytes - beside.budget_bytes == taken
    assert [row.value for row in beside.rows if row.name == "draft_bytes"] == [taken]
    short = replace(MACHINE, memory_available=alone.needed_bytes + taken - 1)
    options = EngineOptions(n_ctx=512, threads=2, load_mode="resident", spec_draft_model=str(folder / "other.gguf"))
    with pytest.raises(DoesNotFit, match="MiB are available"):
        load_engine(folder / "large.gguf", options, short)
    load_engine(folder / "large.gguf", options, replace(short, memory_available=short.memory_available + 1)).shutdown()


@pytest.mark.parametrize(
    ("asked", "model", "found"),
    [("auto", "m", True), ("auto", None, False), ("none", "m", False), ("draft-simple", "m", True)],
)
def test_a_draft_model_is_loaded_where_it_is_used(asked, model, found):
    assert drafts_with_model(asked, model) is found


@pytest.mark.parametrize(("asked", "model"), [("draft-simple", None), ("ngram-simple", "m")])
def test_kind_and_model_that_contradict_each_other_are_refused(asked, model):
    with pytest.raises(UsageError, match="--spec-type"):
        drafts_with_model(asked, model)


class Scripted:
    """A small model that always says 5, or fails: a real one cannot be made to at a given moment."""

    def __init__(self, fails_at: int = 10**9) -> None:
        self.info = type("Info", (), {"n_vocab": 10})()
        self.n_steps, self.fails_at, self.opened = 0, fails_at, 0

    def open(self, ids, sampling, n_predict):
        self.opened += 1
        return object()

    def again(self, seq, ids, sampling, n_predict, keep):
        return seq

    def step(self, seq):
        self.n_steps += 1
        if self.n_steps == self.fails_at:
            raise EngineFailed("ill")
        return StepOut("decode", 1, 1, 5)

    def close(self, seq):
        self.opened -= 1


def measured() -> PassTimes:
    times = PassTimes()
    times.took(1, 1.0)
    return times


def test_a_draft_model_that_is_always_wrong_is_asked_seldom():
    model = Scripted()
    guesser = DraftModel(model, [1, 2], GREEDY, 15, 10, measured())
    asked = []
    for _ in range(10 * TRY_AGAIN):
        guess = guesser.guess(15, 1)
        asked.append(len(guess))
        guesser.settle([4], len(guess))
    assert asked[0] > 0 and sum(asked[-4 * TRY_AGAIN :]) <= 5
    guesser.close()
    assert model.opened == 0


def test_a_draft_model_that_fails_is_left_alone_and_the_answer_goes_on():
    model = Scripted(fails_at=3)
    guesser = DraftModel(model, [1, 2], GREEDY, 15, 10, measured())
    assert guesser.guess(15, 1) == []
    guesser.settle([4], 0)
    assert guesser.guess(15, 1) == [] and model.n_steps == 3


def test_a_text_with_words_that_the_draft_model_does_not_know_is_not_guessed():
    model = Scripted()
    assert DraftModel(model, [1, 10], GREEDY, 15, 10, measured()).guess(15, 1) == []
    guesser = DraftModel(model, [1, 9], GREEDY, 15, 10, measured())
    assert guesser.guess(3, 1) == [5, 5, 5]
    guesser.settle([5, 12], 3)
    assert guesser.guess(3, 1) == [] and guesser.n_accepted == 1


def test_words_that_only_the_draft_model_knows_are_no_guesses():
    assert DraftModel(Scripted(), [1, 2], GREEDY, 15, 5, measured()).guess(3, 1) == []
