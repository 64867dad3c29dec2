"""A tiny model whole, then with wrong extents, and what came of it as JSON; run by test_checked.py in both builds.

    python -m tests.engine.kernels.checked_run MODEL LOAD_MODE
"""

import hashlib
import json
import sys

import numpy as np

from engine.budget import Machine
from engine.errors import EngineFailed
from engine.generate import Engine
from engine.kernels.act import act_bytes, activate
from engine.kernels.program import Buffer, Program, Work
from engine.kernels.regions import CHECKED
from engine.kernels.runner import RECORD
from engine.kernels.step import N_ROWS
from engine.kernels.team import Team
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling

K = 64


def written(engine: Engine) -> str:
    """A digest of some sampled tokens, their rivals and the last logits."""
    sampling = Sampling(temperature=0.8, seed=3, repeat_penalty=1.1, logit_bias={5: 1.0})
    seq = engine.open([1 + i % 300 for i in range(70)], sampling, 6, n_logprobs=3)
    hashed = hashlib.sha256()
    try:
        while seq.finish is None:
            hashed.update(repr(engine.step(seq)).encode())
        hashed.update(engine.logits_of(seq).tobytes())
    finally:
        engine.close(seq)
    return hashed.hexdigest()


def one_row_too_long() -> str:
    """`activate` in layer 1 reads eight floats more than its buffer has."""
    team, x, out, scratch = Team(2), Buffer(K * 4 - 32), Buffer(2 * act_bytes("f32", K, 1)), Buffer(2 * K * 4)
    team.words[N_ROWS // 8] = 1
    program = Program()
    program.layer()
    copies = act_bytes("f32", K, 1)
    program.add(activate, x.address, K, out.address, 0, copies, scratch.address, K * 4, work=Work("blk.1.wrong.weight"))
    program.barrier()
    program.layer()
    recorded = program.finish()
    went_through = team.run(recorded, 2)
    found = team.fault(recorded)
    assert went_through == (not found) and f"{x.address + K * 4 - 32:#x}" in found, (went_through, found)
    team.stop()
    return found


def one_panel_too_many(engine: Engine) -> str:
    """The engine's second attn_q multiplies with a panel that is not there."""
    program = engine._m.program
    names = [about.work.name for about in program.about]
    at = names.index("blk.1.attn_q.weight")
    program.records.view(np.int64)[at * RECORD // 8 + 8] += 1
    try:
        written(engine)
    except EngineFailed as error:
        return str(error)
    finally:
        program.records.view(np.int64)[at * RECORD // 8 + 8] -= 1
    return ""


def main() -> None:
    options = EngineOptions(512, threads=2, threads_batch=2, ubatch_size=64, load_mode=sys.argv[2])
    engine = load_engine(sys.argv[1], options, Machine(1 << 34, None, 2, (0, 1), None))
    found = {"digest": written(engine)}
    if CHECKED:
        found |= {"program": one_row_too_long(), "engine": one_panel_too_many(engine), "after": written(engine)}
    engine.shutdown()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
