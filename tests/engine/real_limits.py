"""Loads a model for real under a limit of private memory and says what came of it; run by test_borders.py.

python -m tests.engine.real_limits MODEL LIMIT CLAIMED OPTIONS     LIMIT: bytes of private writable memory, held by
the kernel (RLIMIT_DATA); CLAIMED: what the planner is told it may use; OPTIONS: JSON of EngineOptions
"""

import json
import resource
import sys

from engine.budget import Machine
from engine.errors import DoesNotFit
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling


def loaded(model: str, claimed: int, options: EngineOptions) -> dict[str, object]:
    """Load, write a few tokens, and what the engine says of itself."""
    engine = load_engine(model, options, Machine(claimed, None, 2, (0, 1), None))
    seq = engine.open([40, 90, 3], Sampling(temperature=0.0), 4)
    tokens: list[int] = []
    while len(tokens) < 4:
        token = engine.step(seq).token
        tokens += [] if token is None else [token]
    info = engine.info
    engine.close(seq)
    engine.shutdown()
    return {"outcome": "runs", "load_mode": info.load_mode, "kv_bytes": info.kv_bytes, "n_tokens": len(tokens)}


def main() -> None:
    model, limit, claimed, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        found = loaded(model, claimed, EngineOptions(**options))
    except DoesNotFit as error:
        found = {"outcome": "refused", "needed_bytes": error.extra["needed_bytes"]}
    except (MemoryError, OSError) as error:
        found = {"outcome": "no memory", "error": str(error)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
