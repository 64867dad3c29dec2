"""Requests and readers: what is read, what fails and how, who is woken. Not here: weights (test_stream.py)."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.kernels import ring
from engine.kernels.disk import SHORT
from engine.kernels.program import Buffer, Program
from engine.kernels.readers import Readers
from engine.kernels.team import Team

DATA = np.random.default_rng(3).integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
SIZE = 10_000


@pytest.fixture
def readers():
    made = Readers(4)
    yield made
    assert made.stop()


@pytest.fixture
def fd(tmp_path):
    path = tmp_path / "some"
    path.write_bytes(DATA)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


class Requests:
    """n requests for SIZE bytes each into memory of their own."""

    def __init__(self, n: int, fd: int, step: int = SIZE) -> None:
        self.block, self.memory = Buffer(n * ring.REQUEST), Buffer(n * SIZE)
        self.words = self.block.view(np.int64).reshape(n, -1)
        for i, words in enumerate(self.words):
            words[:] = 0, 0, fd, i * step, SIZE, self.memory.address + i * SIZE, SIZE, 0

    def at(self, i: int) -> int:
        return self.block.address + i * ring.REQUEST

    def got(self, i: int) -> bytes:
        return self.memory.view(np.uint8)[i * SIZE : (i + 1) * SIZE].tobytes()


def waiting(readers: Readers, requests: Requests, n: int) -> Program:
    program = Program()
    for i in range(n):
        program.add(ring.wait_read, readers.ring, requests.at(i))
    program.barrier()
    return program


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_every_request_is_read_and_every_waiter_goes_on(readers, fd, n_threads):
    requests, team = Requests(100, fd), Team(n_threads)
    program = waiting(readers, requests, 100).finish()
    for _ in range(20):
        requests.words[:, ring.STATE // 8] = 0
        requests.memory.view(np.uint8)[:] = 0
        for i in range(100):
            readers.post(requests.at(i))
        assert team.run(program, n_threads)
        assert all(requests.got(i) == DATA[i * SIZE : (i + 1) * SIZE] for i in range(100))
    assert readers.n_bytes == 20 * 100 * SIZE and readers.take_fault() == ""
    team.stop()


@pytest.mark.parametrize(
    ("fd_of", "step", "state", "words"),
    [
        (lambda fd, _: 987654, SIZE, -9, "bad file descriptor, reading from byte 0 on"),
        (lambda _, path: os.open(path, os.O_WRONLY), SIZE, -9, "bad file descriptor, reading from byte 0 on"),
        (lambda _, path: os.open(path.parent, os.O_RDONLY), SIZE, -21, "is a directory, reading from byte 0 on"),
        (lambda fd, _: fd, 1 << 19, SHORT, "the file ends too early, reading from byte 1,048,576 on"),
    ],
    ids=["no file", "not readable", "folder", "too short"],
)
def test_a_read_that_fails_ends_the_step_and_the_next_one_works(readers, fd, tmp_path: Path, fd_of, step, state, words):
    team, bad = Team(2), Requests(3, fd_of(fd, tmp_path / "some"), step)
    program = waiting(readers, bad, 3).finish()
    for i in (0, 1, 2) if state == SHORT else (0,):
        readers.post(bad.at(i))
    assert not team.run(program, 2)
    readers.drain()
    assert state in bad.words[:, ring.STATE // 8]
    assert readers.take_fault() == words and readers.take_fault() == ""
    team.words[ring.ERROR // 8] = 0
    good = Requests(3, fd)
    for i in range(3):
        readers.post(good.at(i))
    assert team.run(waiting(readers, good, 3).finish(), 2)
    team.stop()


def test_a_cancel_wakes_whoever_waits_for_a_read_that_does_not_come(readers):
    """It is never posted: for the waiters the same as a disk that hangs."""
    team, requests = Team(2), Requests(1, -1)
    program = waiting(readers, requests, 1).finish()
    went_through: list[bool] = []
    thread = threading.Thread(target=lambda: went_through.append(team.run(program, 2)))
    thread.start()
    while readers._words[ring.WAITERS // 8] < 2:
        os.sched_yield()
    team.cancel()
    readers.nudge()
    thread.join(10)
    assert went_through == [False]
    team.stop()


def test_a_slot_is_passed_on_when_the_last_thread_is_done(readers, fd):
    """Three requests share one place: each is read only after all threads have released the one before."""
    team, requests = Team(3), Requests(3, fd)
    requests.words[:, ring.TO // 8] = requests.memory.address
    program = Program()
    for i in range(3):
        program.add(ring.wait_read, readers.ring, requests.at(i))
        program.add(ring.release, readers.ring, requests.at(i), requests.at((i + 1) % 3))
    program.barrier()
    recorded = program.finish()
    readers.post(requests.at(0))
    for _ in range(500):
        assert team.run(recorded, 3)
    readers.finish()  # the last one posted may not have begun: drain would take it back
    assert readers.n_bytes == (500 * 3 + 1) * SIZE
    assert list(requests.words[:, ring.STATE // 8]) == [1, 0, 0] and not requests.words[:, ring.DONE // 8].any()
    assert requests.got(0) == DATA[:SIZE]
    team.stop()


def test_what_nobody_has_begun_is_taken_back(readers, fd):
    requests = Requests(100, fd)
    for _ in range(50):
        for i in range(100):
            readers.post(requests.at(i))
        readers.drain()
        before = readers.n_bytes
        readers.drain()
        assert readers.n_bytes == before <= 50 * 100 * SIZE
