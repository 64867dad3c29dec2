"""The choice of experts against numpy: who is chosen, with what weight, and the list that follows from it."""

from threading import Thread

import numpy as np
import pytest

from engine.kernels import step
from engine.kernels.route import SIGMOID, SLOT, SOFTMAX, choose, elect, group, needed_bytes

SLOTS = np.dtype([("id", np.int64), ("weight", np.float32), ("unused", np.int32)])


def chosen_by(logits: np.ndarray, n_used: int, is_share: bool = True, threads: int = 1) -> np.ndarray:
    """(rows, n_used) of SLOTS, by the op."""
    n_rows, n = logits.shape
    padded = np.full((n_rows, -(-n // 8) * 8), np.float32(1e9))  # what lies behind the experts must not be looked at
    padded[:, :n] = logits
    out, words, counter = np.zeros((n_rows, n_used), SLOTS), np.zeros(step.N_WORDS, np.int64), np.zeros(1, np.int64)
    words[step.N_ROWS // 8] = n_rows
    record = np.zeros(16, np.int64)
    record[1:7] = padded.ctypes.data, padded.shape[1], n, n_used, out.ctypes.data, int(is_share)
    record[15] = counter.ctypes.data
    _ = choose.address
    team = [Thread(target=choose, args=(record.ctypes.data, t, threads, words.ctypes.data)) for t in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    return out


def wanted(logits: np.ndarray, n_used: int, is_share: bool) -> list[list[tuple[int, float]]]:
    rows = []
    for row in logits.astype(np.float64):
        best = np.argsort(-row, kind="stable")[:n_used]
        p = np.exp(row - row.max())
        p /= p[best].sum() if is_share else p.sum()
        rows.append([(int(e), float(p[e])) for e in sorted(best)])
    return rows


@pytest.mark.parametrize(("n", "n_used"), [(128, 8), (64, 8), (13, 4), (5, 5), (7, 1), (1, 1), (300, 17)])
@pytest.mark.parametrize("is_share", [True, False])
def test_the_likeliest_are_chosen_and_weighed(n: int, n_used: int, is_share: bool) -> None:
    logits = np.random.default_rng(n).normal(0, 3, (37, n)).astype(np.float32)
    found = chosen_by(logits, n_used, is_share)
    for row, want in zip(found, wanted(logits, n_used, is_share), strict=True):
        assert row["id"].tolist() == [e for e, _ in want]
        assert row["weight"] == pytest.approx([w for _, w in want], rel=2e-6)
    if is_share:
        assert found["weight"].sum(1) == pytest.approx(np.ones(37), rel=1e-6)


def test_of_equal_ones_the_lower_is_chosen() -> None:
    logits = np.array([[1, 2, 2, 0, 2, 2], [0, 0, 0, 0, 0, 0], [-np.float32(3e38)] * 5 + [3e38]], np.float32)
    found = chosen_by(logits, 3)
    assert found["id"].tolist() == [[1, 2, 4], [0, 1, 2], [0, 1, 5]]
    assert found["weight"][2].tolist() == [0, 0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 4, 9])
def test_what_is_no_number_is_not_hidden_and_stays_in_its_row(bad: float, at: int) -> None:
    logits = np.random.default_rng(1).normal(0, 1, (3, 10)).astype(np.float32)
    logits[1, at] = bad
    found = chosen_by(logits, 4)
    assert np.isnan(found["weight"][1]).all() and np.isfinite(found["weight"][[0, 2]]).all()
    assert (found["id"] >= 0).all() and (found["id"] < 10).all() and (np.diff(found["id"]) > 0).all()


@pytest.mark.parametrize("n_rows", [1, 2, 3, 64])
def test_a_row_is_chosen_for_the_same_alone_and_among_others(n_rows: int) -> None:
    logits = np.random.default_rng(2).normal(0, 1, (64, 40)).astype(np.float32)
    alone = np.concatenate([chosen_by(row[None], 8) for row in logits[:n_rows]])
    for threads in (1, 3):
        assert chosen_by(logits[:n_rows], 8, threads=threads).tobytes() == alone.tobytes()


@pytest.mark.parametrize("n_rows", [1, 2, 100])
def test_the_list_says_for_each_needed_expert_its_rows_in_order(n_rows: int) -> None:
    n, n_used = 40, 5
    logits = np.random.default_rng(3).normal(0, 1, (n_rows, n)).astype(np.float32)
    logits[:, 7] = -9  # one that nobody needs, also with a hundred rows
    chosen = chosen_by(logits, n_used)
    needed, slots = np.full(needed_bytes(n) // 8, -1, np.int64), np.zeros(n_rows * n_used, SLOTS)
    counts, words, record = np.full(n, -1, np.int64), np.zeros(step.N_WORDS, np.int64), np.zeros(16, np.int64)
    words[step.N_ROWS // 8] = n_rows
    record[1:7] = chosen.ctypes.data, n, n_used, needed.ctypes.data, slots.ctypes.data, counts.ctypes.data
    for thread in (1, 0):
        group(record.ctypes.data, thread, 2, words.ctypes.data)
    pairs = sorted((int(c["id"]), row, float(c["weight"])) for row in range(n_rows) for c in chosen[row])
    assert [(int(s["id"]), float(s["weight"])) for s in slots] == [(row, weight) for _, row, weight in pairs]
    entries = needed[2 : 2 + 2 * (needed[0] + 1)].reshape(-1, 2)
    experts = sorted({e for e, _, _ in pairs})
    assert 7 not in experts and entries[:-1, 0].tolist() == experts
    assert entries[:, 1].tolist() == [*([e for e, _, _ in pairs].index(e) for e in experts), len(pairs)]
    assert SLOTS.itemsize == SLOT


def elected_by(logits: np.ndarray, n_used: int, *, gate: int = SIGMOID, favour: np.ndarray | None = None,
               n_groups: int = 1, used: int = 1, of: int = 1, is_share: bool = True, factor: float = 1.0,
               threads: int = 1) -> np.ndarray:  # fmt: skip
    """(rows, n_used) of SLOTS, by the op."""
    n_rows, n = logits.shape
    room = np.full((n_rows, n + n + n_groups + 3), np.float32(1e9))
    room[:, :n] = logits
    out, words, counter = np.zeros((n_rows, n_used), SLOTS), np.zeros(step.N_WORDS, np.int64), np.zeros(1, np.int64)
    words[step.N_ROWS // 8] = n_rows
    record = np.zeros(16, np.int64)
    record[1:7] = room.ctypes.data, room.shape[1], n, n_used, out.ctypes.data, int(is_share)
    record[7:12] = gate, 0 if favour is None else favour.ctypes.data, n_groups, used, of
    record[12:13].view(np.float32)[0] = factor
    record[15] = counter.ctypes.data
    _ = elect.address
    team = [Thread(target=elect, args=(record.ctypes.data, t, threads, words.ctypes.data)) for t in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert (room[:, -3:] == np.float32(1e9)).all(), "written past the room"
    return out


def elected(logits: np.ndarray, n_used: int, *, gate: int, favour: np.ndarray | None, n_groups: int, used: int,
            of: int, is_share: bool, factor: float) -> list[list[tuple[int, float]]]:  # fmt: skip
    """The same in float64, said as the papers say it: score, favour, best groups, best experts, weights."""
    rows = []
    for row in logits.astype(np.float64):
        e = np.exp(row - row.max())
        p = 1 / (1 + np.exp(-row)) if gate == SIGMOID else e / e.sum()
        choice = (p if favour is None else p + favour).reshape(n_groups, -1)
        best = np.argsort(-np.sort(choice, axis=1)[:, -of:].sum(axis=1), kind="stable")[:used]
        allowed = np.full_like(choice, -np.inf)
        allowed[best] = choice[best]
        chosen = sorted(np.argsort(-allowed.reshape(-1), kind="stable")[:n_used])
        weights = p[chosen] / (p[chosen].sum() if is_share else 1.0) * factor
        rows.append([(int(i), float(w)) for i, w in zip(chosen, weights, strict=True)])
    return rows


@pytest.mark.parametrize(
    ("n", "n_used", "n_groups", "used"), [(64, 6, 1, 1), (32, 4, 8, 3), (256, 8, 8, 4), (12, 3, 4, 1)]
)
@pytest.mark.parametrize(("is_share", "factor"), [(True, 2.5), (False, 1.0)])
@pytest.mark.parametrize(("gate", "of", "has_favour"), [(SIGMOID, 2, True), (SIGMOID, 2, False), (SOFTMAX, 1, False)])
def test_groups_favour_and_factor_are_those_of_the_papers(
    n: int, n_used: int, n_groups: int, used: int, is_share: bool, factor: float, gate: int, of: int, has_favour: bool
) -> None:
    rng = np.random.default_rng(n + of)
    logits = rng.normal(0, 2, (19, n)).astype(np.float32)
    favour = rng.normal(0, 0.3, n).astype(np.float32) if has_favour else None
    what = {"gate": gate, "favour": favour, "n_groups": n_groups, "used": used, "of": of, "is_share": is_share}
    found = elected_by(logits, n_used, factor=factor, **what)  # type: ignore[arg-type]
    for row, want in zip(found, elected(logits, n_used, factor=factor, **what), strict=True):  # type: ignore[arg-type]
        assert row["id"].tolist() == [e for e, _ in want]
        assert row["weight"] == pytest.approx([w for _, w in want], rel=4e-6)


def test_favour_decides_who_and_not_how_much() -> None:
    logits, favour = np.zeros((1, 6), np.float32), np.array([0, -1, 0, 5, 0, 0.5], np.float32)
    found = elected_by(logits, 2, favour=favour, is_share=False)[0]
    assert found["id"].tolist() == [3, 5] and found["weight"].tolist() == [0.5, 0.5]


def test_with_one_group_and_no_favour_the_weights_are_those_of_the_plain_op() -> None:
    logits = np.random.default_rng(5).normal(0, 3, (9, 40)).astype(np.float32)
    for is_share in (True, False):
        plain = chosen_by(logits, 7, is_share)
        assert elected_by(logits, 7, gate=SOFTMAX, is_share=is_share).tobytes() == plain.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("used", [1, 2, 4])
def test_what_is_no_number_is_not_hidden_by_a_sigmoid_or_a_group(bad: float, used: int) -> None:
    logits = np.random.default_rng(1).normal(0, 1, (4, 12)).astype(np.float32)
    logits[1, 7] = bad
    for threads in (1, 2):
        found = elected_by(logits, 3, n_groups=4, used=used, of=2, threads=threads)
        assert np.isnan(found["weight"][1]).all() and np.isfinite(found["weight"][[0, 2, 3]]).all()
        assert (found["id"] >= 0).all() and (found["id"] < 12).all() and (np.diff(found["id"]) > 0).all()
