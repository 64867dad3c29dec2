"""The samplers against a slow float64 twin: which tokens may come and how often. Not here: settings."""

import math
from threading import Thread

import numpy as np
import pytest

from engine.kernels import step
from engine.kernels.sample import sample, scratch_bytes
from engine.kernels.sampler import NOT_FINITE
from engine.sampling import Choice, SamplerSlot, Sampling


def choose(slots: list[SamplerSlot | None], logits: np.ndarray, positions: list[int], n_threads: int = 1) -> int:
    """Sample one row per slot; returns the step's error word. Logits must come back as they were."""
    n, n_vocab = logits.shape
    ld = -(-n_vocab // 8) * 8
    x = np.full((n, ld), np.nan, np.float32)
    x[:, :n_vocab] = logits
    before = x.copy()
    scratch = np.full((n_threads, scratch_bytes(n_vocab) // 4), np.nan, np.float32)
    guard = np.full(8, 7, np.float32)
    scratch = np.concatenate([scratch.reshape(-1), guard])
    rows, places = np.arange(n)[::-1].copy(), np.array(positions[::-1], np.int64)
    addresses = np.array([s.address if s else 0 for s in slots], np.int64)
    block, counter, record = np.zeros(step.N_WORDS, np.int64), np.zeros(1, np.int64), np.zeros(16, np.int64)
    for word, value in (
        (step.N_OUT, n),
        (step.N_ROWS, n),
        (step.POSITIONS, places),
        (step.OUT_ROWS, rows),
        (step.SAMPLERS, addresses),
    ):
        block[word // 8] = value if isinstance(value, int) else value.ctypes.data
    record[1:5], record[15] = (x.ctypes.data, ld, n_vocab, scratch.ctypes.data), counter.ctypes.data
    _ = sample.address
    threads = [
        Thread(target=sample, args=(record.ctypes.data, t, n_threads, block.ctypes.data)) for t in range(n_threads)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert np.array_equal(scratch[-8:], guard)
    assert np.array_equal(x[:, :n_vocab], before[:, :n_vocab], equal_nan=True)
    return int(block[step.ERROR // 8])


def one(sampling: Sampling, logits: object, prompt: object = (), position: int = 3, n_logprobs: int = -1) -> Choice:
    values = np.array([logits], np.float32)
    slot = SamplerSlot(sampling, values.shape[1], list(prompt), n_logprobs)
    assert choose([slot], values, [position]) == 0
    return slot.result()


def many(sampling: Sampling, logits: np.ndarray, n: int) -> np.ndarray:
    """How often each token comes over n positions."""
    slots = [SamplerSlot(sampling, len(logits), []) for _ in range(n)]
    assert choose(slots, np.tile(np.float32(logits), (n, 1)), list(range(n))) == 0
    return np.bincount([s.result().token for s in slots], minlength=len(logits))


def twin(s: Sampling, logits: np.ndarray) -> np.ndarray:
    """Chances of every token, float64, each sampler on the sorted survivors of the one before."""
    x = np.float32(logits).astype(np.float64)
    ids = sorted(range(len(x)), key=lambda i: (-x[i], i))
    if s.temperature < 1e-5:
        return np.eye(len(x))[ids[0]]
    if 0 < s.top_k < len(ids):
        ids = ids[: s.top_k]

    def chances(t: float = 1.0) -> np.ndarray:
        e = np.exp((x[ids] - x[ids].max()) / t)
        return e / e.sum()

    if s.typical_p < 1:
        p = chances()
        entropy = -(p * np.log(p)).sum()
        order = np.argsort(np.abs(-np.log(p) - entropy), kind="stable")
        n = int(np.argmax(np.append(np.cumsum(p[order]), 2.0) > s.typical_p)) + 1
        ids = sorted((ids[i] for i in order[:n]), key=lambda i: (-x[i], i))
    if s.top_p < 1:
        n = int(np.argmax(np.append(np.cumsum(chances()), 2.0) >= s.top_p)) + 1
        ids = ids[:n]
    if s.min_p > 0:
        ids = [i for i in ids if x[i] >= x[ids[0]] + math.log(s.min_p)]
    out = np.zeros(len(x))
    out[ids] = chances(s.temperature)
    return out


OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CHAINS = [
    OFF,
    OFF | {"temperature": 0.3},
    OFF | {"temperature": 5.0},
    OFF | {"top_k": 1},
    OFF | {"top_k": 7},
    OFF | {"top_k": 150},
    OFF | {"top_k": 10**9},
    OFF | {"top_p": 0.5},
    OFF | {"top_p": 0.999},
    OFF | {"top_p": 0.0},
    OFF | {"min_p": 0.1},
    OFF | {"min_p": 1.0},
    OFF | {"typical_p": 0.5},
    OFF | {"typical_p": 0.0},
    OFF | {"typical_p": 0.9, "top_k": 30, "top_p": 0.8, "min_p": 0.1},
    OFF | {"top_p": 0.7, "min_p": 0.2},
    {},
    {"top_k": 0},
    {"temperature": 1.5, "top_k": 20, "typical_p": 0.7},
]


@pytest.mark.parametrize("settings", CHAINS, ids=str)
@pytest.mark.parametrize("n_vocab", [5, 130, 1000])
def test_tokens_come_as_often_as_the_twin_says(settings: dict[str, float], n_vocab: int) -> None:
    s, n = Sampling(**settings, seed=11), 600
    logits = np.random.default_rng(n_vocab).standard_normal(n_vocab) * 2
    counts, p = many(s, logits, n), twin(s, logits)
    assert not counts[p == 0].any()
    assert counts.sum() == n
    # 5.5 standard deviations, and a little for the smallest
    assert np.all(np.abs(counts - n * p) <= 5.5 * np.sqrt(n * p * (1 - p)) + 3)


@pytest.mark.parametrize("n_vocab", [49152, 49155, 131_080])
@pytest.mark.parametrize("top_k", [1, 40, 399, 2000])
@pytest.mark.parametrize("shape", ["normal", "ascending", "descending", "equal", "few values"])
def test_the_top_k_of_a_large_vocabulary(n_vocab: int, top_k: int, shape: str) -> None:
    rng = np.random.default_rng(top_k)
    logits = {
        "normal": lambda: rng.standard_normal(n_vocab) * 3,
        "ascending": lambda: np.linspace(-20, 20, n_vocab),
        "descending": lambda: np.linspace(20, -20, n_vocab),
        "equal": lambda: np.full(n_vocab, -1.5),
        "few values": lambda: rng.integers(-3, 3, n_vocab).astype(float),
    }[shape]()
    flat = Sampling(temperature=100.0, top_k=top_k, top_p=1.0, min_p=0.0, seed=1)
    n = 4
    slots = [SamplerSlot(flat, n_vocab, [], 5) for _ in range(n)]
    assert choose(slots, np.tile(np.float32(logits), (n, 1)), list(range(n)), 2) == 0
    order = np.argsort(-np.float32(logits), kind="stable")
    for slot in slots:
        assert slot.result().token in set(order[:top_k])
        assert [t for t, _ in slot.result().top] == list(order[:5])
    greedy = one(Sampling(temperature=0), logits)
    assert greedy.token == order[0]


def test_log_probabilities_are_the_models_own() -> None:
    logits = np.random.default_rng(2).standard_normal(1003) * 4
    exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    order = np.argsort(-logits)
    s = Sampling(temperature=0.7, repeat_penalty=3.0, logit_bias={int(order[1]): 50.0, int(order[0]): -50.0}, seed=4)
    got = one(s, logits, prompt=order[:300], n_logprobs=200)
    assert got.token == order[1] and len(got.top) == 200
    assert [t for t, _ in got.top] == list(order[:200])
    assert np.abs(np.array([p for _, p in got.top]) - exact[order[:200]]).max() < 2e-5
    assert got.logprob is not None and abs(got.logprob - exact[order[1]]) < 2e-5
    assert one(Sampling(), logits).logprob is None
    alone = one(Sampling(), logits, n_logprobs=0)
    assert alone.top == [] and alone.logprob is not None and abs(alone.logprob - exact[alone.token]) < 2e-5


def test_a_vocabulary_smaller_than_the_list_of_log_probabilities() -> None:
    got = one(Sampling(temperature=0), [0.0, 2.0, 1.0], n_logprobs=20)
    assert [t for t, _ in got.top] == [1, 2, 0]


def test_same_seed_and_position_same_token_whatever_rides_along() -> None:
    logits = np.random.default_rng(3).standard_normal((6, 500)).astype(np.float32)
    alone = [one(Sampling(seed=100 + i), logits[i], position=10 + i).token for i in range(6)]
    slots: list[SamplerSlot | None] = [SamplerSlot(Sampling(seed=100 + i), 500, []) for i in range(6)]
    slots[2] = None  # logits only
    assert choose(slots, logits, [10 + i for i in range(6)], 3) == 0
    assert all(s is None or s.result().token == alone[i] for i, s in enumerate(slots))
    draws = [
        one(Sampling(seed=seed, top_k=0, min_p=0, top_p=1), np.zeros(997), position=p).token
        for seed in (0, 1, -1, 2**64 - 1)
        for p in (0, 1, 2)
    ]
    assert len(set(draws[:9])) >= 8 and draws[6:9] == draws[9:]  # -1 and 2^64 - 1 are the same 64 bits


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 5, 129, 998])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"top_k": 0}, {"logit_bias": {7: 1.0}}], ids=str)
def test_logits_that_are_not_finite_end_the_step(bad: float, place: int, settings: dict[str, object]) -> None:
    logits = np.random.default_rng(5).standard_normal((2, 999)).astype(np.float32)
    logits[1, place] = bad
    slots = [SamplerSlot(Sampling(**settings), 999, [], 3) for _ in range(2)]  # type: ignore[arg-type]
    assert choose(slots, logits, [0, 1]) == NOT_FINITE
    assert slots[1].result().token == -1 and 0 <= slots[0].result().token < 999


L = [2.0, -1.0, 0.5, 1.9, -3.0, 0.0]


def seen(sampling: Sampling, prompt: list[int], generated: list[int]) -> list[float]:
    """The logits the samplers see, read back one by one as the log-odds that a bias needs to make a token win."""
    out = []
    for token in range(len(L)):
        low, high = -100.0, 100.0
        others = {i: -100.0 for i in range(len(L)) if i not in (token, (token + 1) % 6)}
        for _ in range(30):  # bisect the bias at which `token` beats a neighbour held at a known level
            middle = (low + high) / 2
            slot = SamplerSlot(
                Sampling(
                    temperature=0, repeat_penalty=sampling.repeat_penalty, presence_penalty=sampling.presence_penalty,
                    frequency_penalty=sampling.frequency_penalty, repeat_last_n=sampling.repeat_last_n,
                    logit_bias=others | {token: middle},
                ), len(L), prompt,
            )  # fmt: skip
            for t in generated:
                slot.accept(t)
            assert choose([slot], np.array([L], np.float32), [0]) == 0
            low, high = (low, middle) if slot.result().token == token else (middle, high)
        out.append(high)
    # token + bias = neighbour, so differences of neighbours; logit 1 (never touched in these cases) fixes the level
    logits = [0.0] * 6
    logits[1] = L[1]
    for i in range(1, 6):
        logits[(i + 1) % 6] = logits[i] + out[i]
    return logits


@pytest.mark.parametrize(
    ("sampling", "prompt", "generated", "expected"),
    [
        (Sampling(repeat_penalty=1.5), [3], [0, 0, 4], [4 / 3, -1, 0.5, 1.9 / 1.5, -4.5, 0]),
        (Sampling(presence_penalty=0.5, frequency_penalty=0.25), [1, 1, 1], [0, 0, 4], [1, -1, 0.5, 1.9, -3.75, 0]),
        (Sampling(repeat_penalty=2, presence_penalty=1), [2], [5], [2, -1, 0.25, 1.9, -3, -1]),
        (Sampling(repeat_penalty=2, repeat_last_n=2), [2, 2], [3, 0, 4], [1, -1, 0.5, 1.9, -6, 0]),
        (Sampling(repeat_penalty=2, repeat_last_n=0), [2, 2], [3, 0, 4], L),
        (Sampling(repeat_penalty=2, repeat_last_n=-1), [2] + [3] * 100, [4] * 100, [2, -1, 0.25, 0.95, -6, 0]),
        (Sampling(frequency_penalty=-0.5), [], [4] * 4, [2, -1, 0.5, 1.9, -1, 0]),
    ],
)
def test_penalties_leave_these_logits(
    sampling: Sampling, prompt: list[int], generated: list[int], expected: list[float]
) -> None:
    assert np.abs(np.array(seen(sampling, prompt, generated)) - expected).max() < 1e-4


def test_border_values_of_the_samplers() -> None:
    assert one(Sampling(temperature=0, top_k=3, top_p=0.0, min_p=1.0, seed=9), L).token == 0
    assert one(Sampling(temperature=0), [1.0, 1.0, 0.0]).token == 0
    assert one(Sampling(temperature=0), np.full(1000, -7.0)).token == 0
    for t in (1e-30, 1e-45, 9e-6, 1e-4):
        assert one(Sampling(temperature=t), L).token == 0
    assert one(Sampling(temperature=0, logit_bias={0: -100}), L).token == 3
    assert one(Sampling(temperature=0, logit_bias={4: 100}), L).token == 4
    assert one(Sampling(temperature=1, logit_bias=dict.fromkeys(range(6), -100.0)), L).token in range(6)
    assert one(Sampling(), [0.0]).token == 0
    assert one(Sampling(**OFF), [-3e38, 3e38, 0.0]).token == 1
