"""Several sequences in one step: same tokens as alone, one budget of rows, shared prompts, guesses, cancels, errors.

Not here: the bits of every way of computing (test_identity.py), one sequence (test_generate.py).
"""

import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from engine.cache.kv import KvFull
from engine.generate import BESIDE, Engine, NotFinite
from engine.load import EngineOptions, load_engine
from engine.planner import Machine
from engine.sampling import Sampling
from engine.sequence import Sequence, portions, share
from tests.tiny import tiny_llama, tiny_mixed

MACHINE = Machine(
    memory_available=8 << 30, memory_limit=None, physical_cores=2, cpu_mask=(0, 1), cpu_quota=None
)  # fmt: skip
GREEDY = Sampling(temperature=0.0)
HOT = Sampling(temperature=1.2, top_k=0, top_p=0.98, min_p=0.0, repeat_penalty=1.2, presence_penalty=0.3, seed=9)
RNG = np.random.default_rng(4)
LENGTHS = (1, 2, 7, 40, 255, 256, 257, 300, 3, 90, 5, 11, 30, 2, 64, 8)
PROMPTS = [
    [int(i) for i in RNG.integers(0, 300, n)] for n in (1, 2, 7, 40, 255, 256, 257, 300, 3, 90, 5, 11, 30, 2, 64, 8)
]


def engine(path: Path, **options: object) -> Engine:
    asked = {"threads": 2, "threads_batch": 2, "n_parallel": 16, "ubatch_size": 64, **options}
    return load_engine(path, EngineOptions(**asked), MACHINE)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_mixed(tmp_path_factory.mktemp("models") / "mixed.gguf")


@pytest.fixture(scope="module")
def loaded(model):
    e = engine(model)
    yield e
    e.shutdown()


def tokens_of(out) -> list[int]:
    return [o.token for o in (out, *out.more) if o.token is not None]


def together(e: Engine, sequences: list[Sequence]) -> dict[Sequence, list[int]]:
    """All of them to their ends, beside each other."""
    made: dict[Sequence, list[int]] = {s: [] for s in sequences}
    while going := [s for s in sequences if s.finish is None]:
        for s, out in zip(going, e.step_many(going), strict=True):
            made[s] += tokens_of(out)
    for s in sequences:
        e.close(s)
    return made


def alone(e: Engine, prompt: list[int], n: int, sampling: Sampling = GREEDY) -> list[int]:
    seq = e.open(prompt, sampling, n)
    return together(e, [seq])[seq]


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_sequences_beside_each_other_make_the_tokens_they_make_alone(loaded, n, sampling):
    sequences = [loaded.open(p, sampling, 4 + i) for i, p in enumerate(PROMPTS[:n])]
    got = together(loaded, sequences)
    for i, s in enumerate(sequences):
        assert got[s] == alone(loaded, PROMPTS[i], 4 + i, sampling), f"{len(PROMPTS[i])} ids"


def test_one_that_joins_late_and_one_that_leaves_early_change_nothing(loaded):
    first = loaded.open(PROMPTS[3], GREEDY, 12)
    made = [t for _ in range(4) for t in tokens_of(loaded.step(first))]
    second, third = loaded.open(PROMPTS[7], GREEDY, 5), loaded.open(PROMPTS[2], HOT, 6)
    for _ in range(2):
        outs = loaded.step_many([second, first, third])
        made += tokens_of(outs[1])
    loaded.close(second)
    while first.finish is None:
        made += tokens_of(loaded.step(first))
    loaded.close(first)
    loaded.close(third)
    assert made == alone(loaded, PROMPTS[3], 12)


def test_a_prompt_is_read_with_the_rows_that_answers_leave(model):
    e = engine(model, ubatch_size=8)
    making = [e.open(PROMPTS[i], GREEDY, 40) for i in (0, 1, 8)]
    while any(s.phase == "prefill" for s in making):
        e.step_many(making)
    reading = e.open(PROMPTS[3], GREEDY, 2)
    dones = []
    while reading.phase == "prefill":
        outs = e.step_many([reading, *making])
        assert all(out.token is not None for out in outs[1:])
        dones.append((outs[0].phase, outs[0].done, outs[0].total))
    assert dones == [("prefill", d, 40) for d in (5, 10, 15, 20, 25, 30, 35, 40)]
    assert outs[0].token is not None and e.step(reading).finish == "length"
    e.shutdown()


def test_a_long_prompt_leaves_room_for_the_answers_beside_it(model):
    """Alone it is read in chunks of the whole budget."""
    e = engine(model, ubatch_size=256)
    making, reading = e.open(PROMPTS[0], GREEDY, 40), e.open(PROMPTS[7], GREEDY, 2)
    e.step(making)
    while reading.phase == "prefill":
        before = reading.n_read
        outs = e.step_many([making, reading])
        assert outs[0].token is not None and reading.n_read - before <= BESIDE
    e.close(reading)
    other = e.open(PROMPTS[7], GREEDY, 2)
    assert e.step(other).done == 256
    e.shutdown()


@pytest.mark.parametrize("ubatch_size", [1, 2, 3])
def test_fewer_rows_than_sequences_take_turns(model, ubatch_size):
    e = engine(model, ubatch_size=ubatch_size)
    sequences = [e.open(p, GREEDY, 6) for p in PROMPTS[:4]]
    got = together(e, sequences)
    assert [got[s] for s in sequences] == [alone(e, p, 6) for p in PROMPTS[:4]]
    e.shutdown()


def test_waiting_sequences_are_served_longest_first(loaded):
    four, served, clock = [loaded.open([i], GREEDY, 9) for i in range(4)], [], count(10**9)
    loaded.step_many(four)
    for _ in range(4):
        for part in share(four, 3, 16):
            part.seq.turn = next(clock)
            served.append(four.index(part.seq))
    assert served == [0, 1, 2, 3] * 3
    for s in four:
        loaded.close(s)


def test_a_short_prompt_does_not_wait_for_the_whole_of_a_long_one(model):
    e = engine(model, n_parallel=3, n_ctx=1024, ubatch_size=64)
    long, short, middle = [5 + i % 90 for i in range(700)], [7 + i % 50 for i in range(30)], PROMPTS[7][:200]
    sequences = [e.open(p, GREEDY, 6) for p in (long, middle, short)]
    for _ in range(2):  # 16 rows of 64 are for those behind
        e.step_many(sequences)
    assert sequences[2].phase == "decode" and sequences[0].n_read >= 96
    got = together(e, sequences)
    assert [got[s][-4:] for s in sequences] == [alone(e, p, 6)[-4:] for p in (long, middle, short)]
    e.shutdown()


@pytest.mark.parametrize(
    ("needs", "rows", "expected"),
    [([], 64, []), ([900], 64, [64]), ([900, 899], 64, [48, 16]), ([900, 900], 64, [64, 0]),
     ([900, 300, 10], 64, [48, 6, 10]),
     ([20, 900, 900], 64, [20, 44, 0]), ([20, 10, 900], 64, [20, 10, 34]), ([9, 9, 9], 3, [3, 0, 0]),
     ([5, 5], 64, [5, 5]), ([900, 900], 0, [0, 0])],
)  # fmt: skip
def test_prompts_share_the_rows_and_leave_none_that_could_be_used(needs, rows, expected):
    got = portions(needs, rows)
    assert got == expected
    assert sum(got) == min(rows, sum(needs)) and all(0 <= n <= need for n, need in zip(got, needs, strict=True))


def test_a_prompt_like_another_is_not_read_again(loaded):
    first = loaded.open(PROMPTS[7], GREEDY, 8)
    made = []
    while first.phase == "prefill":
        made = tokens_of(loaded.step(first))
    longer, other = [*PROMPTS[7], 5, 6], [*PROMPTS[7][:280], 1, 2, 3]
    same, long, cut = (loaded.open(ids, HOT, 8, like=first) for ids in (PROMPTS[7], longer, other))
    assert [s.n_cached for s in (same, long, cut)] == [299, 300, 280]
    got = together(loaded, [first, same, long, cut])
    assert made + got[first] == alone(loaded, PROMPTS[7], 8)
    assert [got[s] for s in (same, long, cut)] == [alone(loaded, ids, 8, HOT) for ids in (PROMPTS[7], longer, other)]
    assert loaded._m.kv.n_free == loaded._m.kv.n_pages


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "sampled"])
def test_guesses_save_steps_and_change_no_token(loaded, sampling):
    want = alone(loaded, PROMPTS[2], 24, sampling)
    seq, beside = loaded.open(PROMPTS[2], sampling, 24), loaded.open(PROMPTS[5], GREEDY, 40)
    made, n_steps, turn = [], 0, 0
    while seq.finish is None:
        if seq.phase == "decode":
            right = want[len(made) : len(made) + 3]
            seq.draft = [right, [*right[:1], 299, *right[2:]], [298], []][turn % 4]
            turn += 1
        out = loaded.step_many([beside, seq])[1]
        made += tokens_of(out)
        n_steps += 1
        assert out.finish == seq.finish and not seq.draft
        after = loaded.logits_of(seq) if seq.finish else None
    assert made == want and n_steps < 18
    loaded.close(seq)
    loaded.close(beside)
    assert np.array_equal(after[-1], loaded.last_logits(PROMPTS[2] + made[:-1]))


def test_logits_of_each_are_those_of_its_own_text(loaded):
    sequences = [loaded.open(p, GREEDY, 30) for p in PROMPTS[:5]]
    texts = [list(p) for p in PROMPTS[:5]]
    while any(s.phase == "prefill" for s in sequences):
        for text, out in zip(texts, loaded.step_many(sequences), strict=True):
            text += tokens_of(out)
    loaded.step_many(sequences)
    got = [loaded.logits_of(s) for s in sequences]
    for s in sequences:
        loaded.close(s)
    for logits, text in zip(got, texts, strict=True):
        assert np.array_equal(logits, [loaded.last_logits(text)])


def test_a_cancelled_step_counts_for_nobody_and_ends_there(tmp_path):
    e = engine(tiny_llama(tmp_path / "deep.gguf", n_layers=24, n_ctx=1024), ubatch_size=256, n_parallel=3)
    prompts = [PROMPTS[2], [int(i) for i in RNG.integers(0, 300, 700)], PROMPTS[3]]
    sequences = [e.open(p, GREEDY, 6) for p in prompts]
    before = [(s.kv.length, s.n_generated) for s in sequences]
    timer = threading.Timer(0.005, e.cancel)
    timer.start()
    n_cancelled, made = 0, {s: [] for s in sequences}
    while going := [s for s in sequences if s.finish is None]:
        before = [(s.kv.length, s.n_generated, s.last) for s in going]
        outs = e.step_many(going)
        if outs[0].cancelled:
            n_cancelled += 1
            assert all(o.cancelled and o.token is None for o in outs)
            assert [(s.kv.length, s.n_generated, s.last) for s in going] == before
        for s, out in zip(going, outs, strict=True):
            made[s] += tokens_of(out)
        if len(made[sequences[0]]) == 3 and n_cancelled < 2:
            e.cancel()
    timer.join()
    for s in sequences:
        e.close(s)
    assert 1 <= n_cancelled <= 2
    assert [made[s] for s in sequences] == [alone(e, p, 6) for p in prompts]
    e.shutdown()


def test_numbers_that_are_none_name_their_sequence_and_spare_the_others(tmp_path):
    """Only the token 7 has a broken embedding."""
    path = tiny_llama(tmp_path / "nan.gguf", quant="F32")
    want_engine = engine(path, n_parallel=3)
    want = alone(want_engine, [3, 4, 5], 5)
    want_engine.shutdown()
    _spoil_embedding(path, 7)
    e = engine(path, n_parallel=3)
    good, bad, other = e.open([3, 4, 5], GREEDY, 5), e.open([3, 7, 5], GREEDY, 5), e.open([9], GREEDY, 5)
    with pytest.raises(NotFinite) as broken:
        e.step_many([good, bad, other])
    assert broken.value.sequences == [bad]
    assert [s.kv.length for s in (good, bad, other)] == [0, 0, 0]
    e.close(bad)
    assert together(e, [good, other])[good] == want
    e.shutdown()


def _spoil_embedding(path: Path, token: int) -> None:
    from engine.gguf.reader import read_gguf

    info = read_gguf(path).tensors["token_embd.weight"]
    with path.open("r+b") as file:
        file.seek(info.offset + token * info.dims[0] * 4)
        file.write(np.full(info.dims[0], np.nan, np.float32).tobytes())


def test_more_sequences_than_asked_for_are_refused_with_the_setting_to_change(model):
    e = engine(model, n_parallel=2)
    first, second = e.open([1], GREEDY, 3), e.open([2], GREEDY, 3)
    with pytest.raises(KvFull, match=r"all 2 sequences .*--parallel"):
        e.open([3], GREEDY, 3)
    e.close(first)
    e.close(e.open([3], GREEDY, 3))
    e.close(second)
    assert e._m.kv.n_free == e._m.kv.n_pages
    e.shutdown()


def test_all_sequences_can_fill_their_contexts(model):
    e = engine(model, n_parallel=3, n_ctx=256)
    prompt = [9, 8, 7] * 80
    sequences = [e.open([i, *prompt], GREEDY, 1000) for i in range(3)]
    got = together(e, sequences)
    assert [len(got[s]) for s in sequences] == [256 - 241] * 3
    e.shutdown()


def test_every_one_of_many_sequences_gets_logits_and_guesses_take_what_is_left(model):
    e = engine(model, n_parallel=20, n_ctx=256)  # more than 16: four rows of logits each
    sequences = [e.open(PROMPTS[i % 16][:30], GREEDY, 6) for i in range(20)]
    while any(s.phase == "prefill" for s in sequences):
        e.step_many([s for s in sequences if s.phase == "prefill"])
    for s in sequences:
        s.draft = [1, 2, 3, 4, 5]
    parts = share([s for s in sequences if s.finish is None], 64, 80)
    assert sum(len(p.ids) for p in parts) == sum(p.wanted for p in parts) == 64
    got = together(e, [s for s in sequences if s.finish is None])
    assert all(got[s] == alone(e, [int(i) for i in s.prompt], 6)[6 - len(got[s]) :] for s in got)
    e.shutdown()
