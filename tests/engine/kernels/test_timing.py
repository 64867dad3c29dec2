"""The mode that times every op: times add up, waiting is seen, bytes and multiplications are counted by rows."""

import time

import numpy as np
import pytest

from engine.kernels.jit import op
from engine.kernels.program import Program, Work
from engine.kernels.simd import ld_i64
from engine.kernels.step import CANCEL, N_OUT, N_ROWS, POSITIONS
from engine.kernels.sync import clock_ns
from engine.kernels.team import Team

SPIN_NS = 3_000_000


@op
def spin_on_first(o, tid, nth, st):
    """Thread 0 alone is busy for as long as word 1 says."""
    end = clock_ns() + ld_i64(o + 8)
    while tid == 0 and clock_ns() < end:
        pass


def two_layers() -> Program:
    program = Program()
    program.barrier()  # from here on both are there, however busy the machine
    for layer in range(2):
        program.add(spin_on_first, SPIN_NS, work=Work(f"blk.{layer}.w.weight", n_bytes=1000, row_bytes=10, row_macs=7))
        program.layer()
        program.barrier()
    program.add(spin_on_first, 0, work=Work(past_bytes=2, past_macs=3))
    program.add(spin_on_first, 0, work=Work("near", past_bytes=2, window=6))
    program.add(spin_on_first, 0, work=Work("output.weight", row_macs=5, rows=N_OUT))
    return program


def test_a_thread_that_waits_is_seen_and_all_times_add_up_to_the_step():
    team, recorded = Team(2), two_layers().finish()
    assert team.run(recorded, 2)
    team.start_timing()
    start = time.perf_counter_ns()
    for _ in range(5):
        assert team.run(recorded, 2)
    wall = time.perf_counter_ns() - start
    rows = team.stop_timing()
    assert [(r.op, r.tensor, r.layer) for r in rows] == [
        ("barrier", "at the start", None),
        ("spin_on_first", "w", 0), ("barrier", "after spin_on_first w", 0),
        ("spin_on_first", "w", 1), ("barrier", "after spin_on_first w", 1),
        ("spin_on_first", "", None), ("spin_on_first", "near", None), ("spin_on_first", "output", None),
        ("barrier", "end of the step", None),
    ]  # fmt: skip
    busy, waiting = (sum(r.ns for r in rows if (r.op == "barrier") == is_one) for is_one in (False, True))
    assert busy >= 5 * 2 * SPIN_NS / 2, "half of the time of the thread that spun"
    assert waiting >= 0.5 * 5 * 2 * SPIN_NS / 2, "the other one waited meanwhile"
    assert busy + waiting >= 5 * 2 * SPIN_NS and busy + waiting <= wall
    team.stop()


def test_bytes_and_multiplications_follow_rows_outputs_and_positions():
    team, recorded = Team(1), two_layers().finish()
    positions = np.array([4, 5, 9], np.int64)
    team.words[N_ROWS // 8], team.words[N_OUT // 8], team.words[POSITIONS // 8] = 3, 2, positions.ctypes.data
    team.start_timing()
    for _ in range(2):
        assert team.run(recorded, 1)
    team.is_timed = False
    assert team.run(recorded, 1), "a step that is left out"
    _, first, _, _, _, past, near, out, _ = team.stop_timing()
    assert (first.n_steps, first.n_bytes, first.n_macs) == (2, 2 * 1000 + 6 * 10, 6 * 7)
    assert (past.n_bytes, past.n_macs) == (2 * (5 + 6 + 10) * 2, 2 * (5 + 6 + 10) * 3)
    assert (near.n_bytes, near.n_macs) == (2 * (5 + 6 + 6) * 2, 0)
    assert (out.n_bytes, out.n_macs) == (0, 4 * 5)
    team.stop()


@pytest.mark.parametrize("n_timed", [0, 1])
def test_only_steps_that_went_through_are_counted(n_timed):
    team, recorded = Team(2), two_layers().finish()
    team.start_timing()
    for _ in range(n_timed):
        assert team.run(recorded, 2)
    team.cancel()
    assert not team.run(recorded, 2)
    assert {r.n_steps for r in team.stop_timing()} == {n_timed}
    team.words[CANCEL // 8] = 0
    assert team.run(recorded, 2) and team.stop_timing() == []
    team.stop()
