"""Barriers, counters, cancellation and the idle sleep of the thread team."""

import os
import threading
import time

import numpy as np
import pytest

from engine.kernels.chunks import take
from engine.kernels.jit import op
from engine.kernels.program import Buffer, Program
from engine.kernels.simd import ld_i64, st_i64
from engine.kernels.step import CANCEL, LAYER, N_ROWS
from engine.kernels.sync import atomic_add, atomic_load, clock_ns
from engine.kernels.team import Team


@op
def count_units(o, tid, nth, st):
    while True:
        i = atomic_add(ld_i64(o + 120), 1)
        if i >= ld_i64(o + 16):
            break
        atomic_add(ld_i64(o + 8) + i * 8, 1)


@op
def check_all(o, tid, nth, st):
    """Add one to the error tally for every unit that is not at the wanted count yet."""
    for i in range(ld_i64(o + 16)):
        if ld_i64(ld_i64(o + 8) + i * 8) != ld_i64(o + 24):
            atomic_add(ld_i64(o + 32), 1)


@op
def wait_for_cancel(o, tid, nth, st):
    while atomic_load(st + CANCEL) == 0:
        pass


@op
def linger(o, tid, nth, st):
    """Thread 0 is busy until the clock says what stands at word 1."""
    while tid == 0 and clock_ns() < ld_i64(ld_i64(o + 8)):
        pass


@op
def units_of_their_own(o, tid, nth, st):
    """Word 1 counts each unit of word 2, word 3 at least at once; word 4 counts the chunks."""
    while True:
        first, end = take(ld_i64(o + 120), ld_i64(o + 16), nth, ld_i64(o + 24), ld_i64(o + 16))
        if first == end:
            break
        atomic_add(ld_i64(o + 32), 1)
        for i in range(first, end):
            atomic_add(ld_i64(o + 8) + i * 8, 1)


@op
def mark(o, tid, nth, st):
    st_i64(ld_i64(o + 8), 1)


def test_every_unit_is_done_once_and_before_the_barrier_opens():
    """300 programs of 20 phases on three threads of two CPUs: a lost wake-up would hang, an early exit be counted."""
    team, units, wrong = Team(3), Buffer(64 * 8), Buffer(8)
    program = Program()
    for phase in range(20):
        program.add(count_units, units.address, 64, counter=True)
        program.barrier()
        program.add(check_all, units.address, 64, phase + 1, wrong.address)
        program.barrier()
        program.layer()
    recorded = program.finish()
    for _ in range(300):
        units.view(np.int64)[:] = 0
        assert team.run(recorded, 3)
    assert wrong.view(np.int64)[0] == 0
    assert team.words[LAYER // 8] == 300 * 20
    team.stop()


@pytest.mark.parametrize("rows", [1, 9])
def test_fewer_threads_than_the_team_may_run_a_program(rows):
    team, units = Team(3), Buffer(64 * 8)
    team.words[N_ROWS // 8] = rows
    program = Program()
    program.add(count_units, units.address, 64, counter=True)
    program.tile_barrier()
    recorded = program.finish()
    for n in (1, 2, 3, 1, 3, 2) * 20:
        assert team.run(recorded, n)
    assert (units.view(np.int64) == 120).all()
    team.stop()


def test_cancel_leaves_at_the_next_barrier_and_the_team_works_on():
    team, after = Team(2), Buffer(8)
    program = Program()
    program.add(wait_for_cancel)
    program.barrier()
    program.add(mark, after.address)
    recorded = program.finish()
    threading.Timer(0.05, team.cancel).start()
    assert not team.run(recorded, 2)
    assert after.view(np.int64)[0] == 0
    other = Program()
    other.add(mark, after.address)
    other.barrier()
    team.words[CANCEL // 8] = 0
    assert team.run(other.finish(), 2)
    assert after.view(np.int64)[0] == 1
    team.stop()


@pytest.mark.parametrize(("n", "threads", "least"), [(1, 3, 0), (7, 2, 4), (1000, 3, 1), (1000, 2, 64), (1000, 1, 1)])
def test_shrinking_chunks_hand_out_every_unit_once(n, threads, least):
    team, units, chunks = Team(threads), Buffer(n * 8), Buffer(8)
    program = Program()
    program.add(units_of_their_own, units.address, n, least, chunks.address, counter=True)
    recorded = program.finish()
    for _ in range(50):
        assert team.run(recorded, threads)
    assert (units.view(np.int64) == 50).all()
    n_chunks = chunks.view(np.int64)[0] / 50
    assert n_chunks == 1 if threads == 1 else n_chunks <= min(n / max(1, least) + 1, 100)
    team.stop()


def test_who_waits_long_in_a_barrier_sleeps():
    """A partner that the system took off its core is not to be waited for on another one."""
    team, end = Team(2), Buffer(8)
    program = Program()
    program.barrier()
    program.add(linger, end.address)
    recorded = program.finish()
    assert team.run(recorded, 2)
    end.view(np.int64)[0] = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 400_000_000
    before = time.process_time()
    assert team.run(recorded, 2)
    assert time.process_time() - before < 0.5
    team.stop()


def test_the_caller_is_pinned_until_the_team_stops():
    mask = os.sched_getaffinity(0)
    team, program = Team(1, [min(mask)]), Program()
    program.barrier()
    assert team.run(program.finish(), 1) and os.sched_getaffinity(0) == {min(mask)}
    team.stop()
    assert os.sched_getaffinity(0) == mask


def test_an_idle_team_sleeps():
    team, program = Team(2), Program()
    program.barrier()
    recorded = program.finish()
    assert team.run(recorded, 2)
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.2
    assert team.run(recorded, 2)
    team.stop()


@op
def store_next(o, tid, nth, st):
    """The word at record word 1 becomes the next of the list at record word 2, whose place is word 3."""
    if tid == 0:
        st_i64(ld_i64(o + 8), ld_i64(ld_i64(o + 16) + ld_i64(ld_i64(o + 24)) * 8))
        st_i64(ld_i64(o + 24), ld_i64(ld_i64(o + 24)) + 1)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("is_timed", [False, True])
def test_ops_that_a_step_does_not_need_are_left_out_by_all_threads(n_threads: int, is_timed: bool) -> None:
    """Three stretches, each recorded four times over: how often it runs is known when the threads come there."""
    wanted, done, word, at = Buffer(24), Buffer(8 * 12), Buffer(8), Buffer(8)
    program = Program()
    for i in range(3):
        program.add(store_next, word.address, wanted.address, at.address)
        program.barrier()
        for j in range(4):
            with program.only_above(word.address, j):
                program.barrier()
                program.add(count_units, done.address + (4 * i + j) * 8, 1, counter=True)
                program.barrier()
        program.barrier()
    recorded, team = program.finish(), Team(n_threads)
    if is_timed:
        team.start_timing()
    for times in ([0, 1, 4], [4, 4, 4], [0, 0, 0], [2, 3, 1]):
        wanted.view(np.int64)[:] = times
        done.view(np.int64)[:] = at.view(np.int64)[:] = 0
        assert team.run(recorded, n_threads)
        assert done.view(np.int64).reshape(3, 4).tolist() == [[int(j < n) for j in range(4)] for n in times]
    if is_timed:
        assert {row.op for row in team.stop_timing()} == {"store_next", "count_units", "barrier"}
    team.stop()
