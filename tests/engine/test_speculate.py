"""Answers with guesses are the answers without: greedy, sampled, beside others, cancelled, at every border.

Not here: where guesses come from (test_lookup.py), whether they pay (test_meter.py), guesses by hand
(test_step_many.py).
"""

from pathlib import Path

import numpy as np
import pytest

from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.planner import Machine
from engine.sampling import Sampling
from engine.speculate import spec_type_of
from tests.engine.answers import all_of, without_noise
from tests.tiny import tiny_llama, tiny_mixed

MACHINE = Machine(
    memory_available=8 << 30, memory_limit=None, physical_cores=2, cpu_mask=(0, 1), cpu_quota=None
)  # fmt: skip
GREEDY = Sampling(temperature=0.0)
HOT = Sampling(temperature=0.7, top_k=0, top_p=0.98, min_p=0.0, repeat_penalty=1.05, presence_penalty=0.1, seed=9)
RNG = np.random.default_rng(4)
WORDS = [int(i) for i in RNG.integers(0, 300, 12)]
PROMPTS = [WORDS * 3 + WORDS[:5], [int(i) for i in RNG.integers(0, 300, 40)], [7], [5, 6] * 30]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_mixed(tmp_path_factory.mktemp("models") / "mixed.gguf")


def engine(path: Path, **options: object) -> Engine:
    asked = {"threads": 2, "threads_batch": 2, "n_parallel": 4, "ubatch_size": 64, **options}
    e = load_engine(path, EngineOptions(**asked), MACHINE)  # type: ignore[arg-type]
    return without_noise(e) if asked.get("spec_type") == "ngram-simple" else e


@pytest.fixture(scope="module")
def plain(model):
    e = engine(model, spec_type="none")
    yield e
    e.shutdown()


@pytest.fixture(scope="module")
def guessing(model):
    e = engine(model, spec_type="ngram-simple")
    yield e
    e.shutdown()


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("n", [1, 2, 3, 90])
def test_same_tokens_and_same_logprobs_in_fewer_passes(plain, guessing, sampling, n):
    saved = 0
    for prompt in PROMPTS:
        want, n_plain = all_of(plain, [plain.open(prompt, sampling, n, n_logprobs=2)])
        seq = guessing.open(prompt, sampling, n, n_logprobs=2)
        got, n_steps = all_of(guessing, [seq])
        assert got == want
        assert n_plain - n_steps == seq.n_accepted <= seq.n_drafted
        saved += seq.n_accepted
    assert saved > 20 or n < 90


def test_sequences_beside_each_other_guess_each_for_itself(plain, guessing):
    asked = [(prompt, sampling, 30 + 7 * i) for i, prompt in enumerate(PROMPTS) for sampling in (GREEDY, HOT)]
    for four in (asked[:4], asked[4:]):
        want, n_plain = all_of(plain, [plain.open(*one) for one in four])
        sequences = [guessing.open(*one) for one in four]
        got, n_steps = all_of(guessing, sequences)
        assert got == want and n_steps <= n_plain
        assert sum(s.n_accepted for s in sequences) > 0


def test_an_answer_ends_at_the_end_token_also_within_a_run_of_right_guesses(plain, guessing):
    (want,), _ = all_of(plain, [plain.open(PROMPTS[3], GREEDY, 60)])
    ends = set()
    for token in {token for token, *_ in want}:
        results = []
        for e in (plain, guessing):
            seq = e.open(PROMPTS[3], GREEDY, 60, frozenset([token]))
            results.append((all_of(e, [seq])[0], seq.finish, seq.kv.length))
        assert results[0][:2] == results[1][:2]
        ends.add(results[0][1])
    assert ends == {"stop"}


@pytest.mark.parametrize("options", [{"ubatch_size": 1}, {"ubatch_size": 3}, {"batch_size": 2}, {"n_ctx": 256}])
def test_borders_of_rows_and_context(model, plain, options):
    e = engine(model, spec_type="ngram-simple", **options)
    for prompt in (PROMPTS[0], [9, 8, 7] * 80):
        want = all_of(plain, [plain.open(prompt, GREEDY, min(50, e.info.n_ctx - len(prompt)))])[0]
        assert all_of(e, [e.open(prompt, GREEDY, 50)])[0] == want
    assert e._m.kv.n_free == e._m.kv.n_pages
    e.shutdown()


@pytest.mark.parametrize("least, most", [(1, 1), (2, 4), (3, 15), (32, 0)])
def test_shortest_match_and_most_guesses_are_obeyed(model, plain, least, most):
    e = engine(model, spec_type="ngram-simple", spec_ngram_simple_size_n=least, spec_ngram_simple_size_m=max(1, most))
    seq = e.open(PROMPTS[3], GREEDY, 40)
    drafts = []
    while seq.finish is None:
        before = seq.n_drafted
        e.step(seq)
        drafts.append(seq.n_drafted - before)
    assert min(1, most) <= max(drafts) <= most, "no 32 ids of it stand there twice"
    e.close(seq)
    e.shutdown()


def test_a_cancelled_step_keeps_its_guesses_and_counts_none(tmp_path):
    path = tiny_llama(tmp_path / "deep.gguf", n_layers=24, n_ctx=1024)
    e = engine(path, spec_type="ngram-simple")
    (want,), _ = all_of(e, [e.open(PROMPTS[3], GREEDY, 40)])
    seq, made, n_cancelled = e.open(PROMPTS[3], GREEDY, 40), [], 0
    while seq.finish is None:
        if len(made) % 3 == 1 and n_cancelled < 20:
            e.cancel()
        before = (seq.kv.length, seq.n_generated, seq.n_drafted)
        out = e.step(seq)
        if out.cancelled:
            n_cancelled += 1
            assert (seq.kv.length, seq.n_generated, seq.n_drafted) == before
        made += [one.token for one in (out, *out.more) if one.token is not None]
    assert n_cancelled > 5 and made == [token for token, *_ in want]
    e.close(seq)
    e.shutdown()


def test_a_guess_that_breaks_the_numbers_is_a_wrong_guess(tmp_path):
    """Token 7 has a broken embedding: a text that never meets it must not fail for having guessed it."""
    from engine.gguf.reader import read_gguf

    path = tiny_llama(tmp_path / "nan.gguf", quant="F32")
    info = read_gguf(path).tensors["token_embd.weight"]
    with path.open("r+b") as file:
        file.seek(info.offset + 7 * info.dims[0] * 4)
        file.write(np.full(info.dims[0], np.nan, np.float32).tobytes())
    e = engine(path, n_parallel=2)
    (want,), _ = all_of(e, [e.open([3, 4, 5], GREEDY, 12)])
    seq, beside, made = e.open([3, 4, 5], GREEDY, 12), e.open([9], HOT, 12), []
    while seq.finish is None:
        if seq.phase == "decode" and seq.finish is None:
            seq.draft = [want[len(made)][0], 7] if len(made) < 10 else [7]
        out, _ = e.step_many([seq, beside])
        made += [one.token for one in (out, *out.more)]
    assert made == [token for token, *_ in want]
    e.shutdown()


@pytest.mark.parametrize(
    ("asked", "load_mode", "is_dense", "got"),
    [
        ("auto", "stream", True, "ngram-simple"),
        ("auto", "stream", False, "none"),
        ("auto", "resident", True, "none"),
        ("auto", "mmap", True, "none"),
        ("none", "stream", True, "none"),
        ("ngram-simple", "resident", False, "ngram-simple"),
    ],
)
def test_auto_guesses_where_a_pass_is_a_disk_scan_of_a_dense_model(asked, load_mode, is_dense, got):
    assert spec_type_of(asked, load_mode, is_dense, None) == got


def test_a_stream_guesses_unasked_and_answers_the_same(model, plain):
    e = without_noise(engine(model, load_mode="stream", pinned_bytes=0, ring_bytes=1 << 20))
    assert e.info.spec_type == "ngram-simple"
    for sampling in (GREEDY, HOT):
        seq = e.open(PROMPTS[3], sampling, 60)
        assert all_of(e, [seq])[0] == all_of(plain, [plain.open(PROMPTS[3], sampling, 60)])[0]
        assert seq.n_accepted > 0
    e.shutdown()


def test_an_engine_says_whether_it_guesses(plain, guessing, model):
    e = engine(model)
    assert [e.info.spec_type, plain.info.spec_type, guessing.info.spec_type] == ["none", "none", "ngram-simple"]
    e.shutdown()
