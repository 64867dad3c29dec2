"""Whole generations on tiny models: ends, cancellation, same bits in every mode, bad requests."""

import threading
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ContextLengthExceeded, InvalidParameter, UnsupportedModel
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.planner import Machine
from engine.sampling import Sampling
from tests.blocks import quantise
from tests.tiny import tiny_llama, tiny_mixed

MACHINE = Machine(
    memory_available=8 << 30, memory_limit=None, physical_cores=2, cpu_mask=(0, 1), cpu_quota=None
)  # fmt: skip
GREEDY = Sampling(temperature=0.0)
PROMPT = [5, 80, 3, 200, 41, 41, 7]


def engine(path: Path, **options: object) -> Engine:
    return load_engine(path, EngineOptions(**{"threads": 2, "threads_batch": 2, **options}), MACHINE)  # type: ignore[arg-type]


def answer(e: Engine, prompt: list[int], n: int, sampling: Sampling = GREEDY, eog: frozenset[int] = frozenset()):
    """(tokens, why it ended)"""
    seq = e.open(prompt, sampling, n, eog)
    tokens = []
    try:
        while True:
            out = e.step(seq)
            tokens += [] if out.token is None else [out.token]
            if out.finish:
                return tokens, out.finish
    finally:
        e.close(seq)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_mixed(tmp_path_factory.mktemp("models") / "mixed.gguf")


@pytest.fixture
def loaded(model):
    e = engine(model)
    yield e
    e.shutdown()


@pytest.mark.parametrize("type_k, type_v", [("f16", "f16"), ("q8_0", "q8_0"), ("f16", "q8_0")])
def test_same_bits_for_threads_chunks_and_layouts(model, type_k, type_v):
    """The rule of the house: a row's numbers depend on its ids, the weights' types and the KV types alone."""
    prompt = list(np.random.default_rng(1).integers(0, 300, 300))
    seen = set()
    for mode in ("resident", "mmap"):
        for threads, ubatch in ((1, 1), (2, 1), (1, 7), (2, 64), (1, 512), (2, 512)):
            e = engine(model, threads=threads, threads_batch=threads, ubatch_size=ubatch, load_mode=mode,
                       type_k=type_k, type_v=type_v)  # fmt: skip
            seen.add(e.last_logits(prompt).tobytes())
            assert e.info.load_mode == mode
            e.shutdown()
    assert len(seen) == 1


def test_a_vocabulary_that_is_no_multiple_of_eight(tmp_path):
    """The last panel is padded; neither layout may read past the matrix or invent a token."""
    path = tiny_llama(tmp_path / "ragged.gguf", n_vocab=317, quant="Q8_0")
    modes = [engine(path, load_mode=mode) for mode in ("resident", "mmap")]
    rows = [list(e.logit_rows(PROMPT)) for e in modes]
    assert all(r.shape == (317,) and np.isfinite(r).all() for r in rows[0])
    assert all((a == b).all() for a, b in zip(*rows, strict=True))
    assert answer(modes[0], PROMPT, 20) == answer(modes[1], PROMPT, 20)
    for e in modes:
        e.shutdown()


def test_decoding_equals_reading_the_same_text(loaded):
    tokens, _ = answer(loaded, PROMPT, 12)
    rows = list(loaded.logit_rows(PROMPT + tokens))
    assert [int(row.argmax()) for row in rows[len(PROMPT) - 1 : -1]] == tokens


def test_it_ends_at_the_end_token_the_limit_and_the_context(loaded):
    tokens, why = answer(loaded, PROMPT, 9)
    assert (len(tokens), why) == (9, "length")
    cut, why = answer(loaded, PROMPT, 9, eog=frozenset([tokens[4]]))
    assert (cut, why) == (tokens[: tokens.index(tokens[4]) + 1], "stop")
    long = [9] * (loaded.info.n_ctx - 3)
    tokens, why = answer(loaded, long, 100)
    assert (len(tokens), why) == (3, "length")


def test_seeded_sampling_repeats_and_other_seeds_differ(loaded):
    wild = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    hot = [answer(loaded, PROMPT, 24, Sampling(**wild, seed=s)) for s in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cancel_ends_a_step_and_the_next_sequence_is_whole(tmp_path, phase):
    path = tiny_llama(tmp_path / "deep.gguf", n_layers=40, n_ctx=2048)
    e = engine(path, ubatch_size=512)
    want, _ = answer(e, PROMPT, 8)
    prompt = [int(i) for i in np.random.default_rng(2).integers(0, 300, 2000 if phase == "prefill" else 5)]
    seq = e.open(prompt, GREEDY, 2000)
    if phase == "decode":
        e.step(seq)
    threading.Timer(0.01, e.cancel).start()
    outs = []
    for _ in range(2000):
        outs.append(e.step(seq))
        if outs[-1].cancelled or outs[-1].finish:
            break
    e.close(seq)
    assert outs[-1].cancelled and outs[-1].phase == phase and outs[-1].token is None
    assert answer(e, PROMPT, 8)[0] == want
    e.shutdown()


def test_a_cancel_between_two_steps_is_kept_until_the_next(loaded):
    seq = loaded.open(PROMPT, GREEDY, 5)
    loaded.step(seq)
    loaded.cancel()
    assert loaded.step(seq).cancelled
    loaded.close(seq)
    assert len(answer(loaded, PROMPT, 5)[0]) == 5, "a new sequence starts with a clean word"


def test_the_beat_counts_layers(loaded):
    before = loaded.beat()
    answer(loaded, PROMPT, 3)
    assert loaded.beat() == before + 3 * loaded.info.n_layers


def test_prompts_that_cannot_be_answered(loaded):
    with pytest.raises(ContextLengthExceeded) as full:
        loaded.open([1] * loaded.info.n_ctx, GREEDY, 1)
    assert full.value.extra == {"n_prompt_tokens": loaded.info.n_ctx, "n_ctx": loaded.info.n_ctx}
    for ids in ([], [-1], [loaded.info.n_vocab]):
        with pytest.raises(InvalidParameter):
            loaded.open(ids, GREEDY, 1)
    with pytest.raises(InvalidParameter):
        loaded.open(PROMPT, GREEDY, 0)


def test_a_tensor_nobody_claims_is_named(tmp_path):
    scale = ("blk.0.attn_q.scale", (128,), "F32", quantise(np.zeros(128, np.float32), "F32"))
    path = tiny_llama(tmp_path / "extra.gguf", extra=[scale])
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_q\.scale"):
        engine(path)


def test_logprobs_are_those_of_the_whole_vocabulary(loaded):
    seq = loaded.open(PROMPT, GREEDY, 1, n_logprobs=5)
    out = loaded.step(seq)
    loaded.close(seq)
    want = loaded.logits(PROMPT, 5)[-1]
    assert out.token == want[0][0] and [i for i, _ in out.top] == [i for i, _ in want]
    assert out.logprob == pytest.approx(want[0][1], abs=1e-5)
    assert [p for _, p in out.top] == pytest.approx([p for _, p in want], abs=1e-5)
