"""Cancels for tests of engines that read from disk: at any moment, and while it does not answer. Not here: tests."""

import random
import threading
from collections.abc import Callable

from engine.generate import Engine
from engine.kernels import step
from engine.sampling import Sampling
from engine.sequence import Sequence, StepOut

GREEDY = Sampling(temperature=0.0)
N_EACH = 50


def pester(engine: Engine, prompt: Callable[[random.Random], list[int]]) -> None:
    """Cancel at random moments until N_EACH steps were left and as many were not; then nothing is being cancelled."""
    stop, rng = threading.Event(), random.Random(4)

    def cancel() -> None:
        while not stop.wait(rng.uniform(0, 0.005)):
            engine.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    n_cancelled = n_whole = 0
    while n_cancelled < N_EACH or n_whole < N_EACH:
        seq = engine.open(prompt(rng), GREEDY, 1)
        n_cancelled += engine.step(seq).cancelled
        n_whole += seq.finish is not None
        engine.close(seq)
    stop.set()
    thread.join()
    engine._words[step.CANCEL // 8] = 0


def cancelled_while_waiting(engine: Engine, seq: Sequence) -> StepOut:
    """What a step comes to that waits for a disk that does not answer, and is cancelled: the readers have gone home."""
    assert engine._m.stream is not None and engine._m.stream.readers.stop()
    outs: list[StepOut] = []
    thread = threading.Thread(target=lambda: outs.append(engine.step(seq)))
    thread.start()
    while not outs:  # one that comes before the step begins is forgotten
        engine.cancel()
        thread.join(0.01)
    return outs[0]
