"""How often each expert was used, as a recorded file tells it. Not here: recording, what is done about it.

    {"model_digest": "…", "layers": [[heat of expert 0, 1, …] for each layer with experts]}      heat: any number ≥ 0
"""

import json
from pathlib import Path

from engine.errors import UsageError
from engine.gguf.layout import quoted

Heat = list[list[float]]
MOST_BYTES = 64 << 20


def read_heat(path: Path, n_layers: int, n_experts: int, digest: str) -> Heat:
    """The heat of a model with this digest; UsageError in one sentence for another model's file or a damaged one."""
    name = quoted(path.name, 120)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        found = json.loads(data) if len(data) <= MOST_BYTES else None
    except OSError as error:
        raise UsageError(f"the heat file {name} cannot be read: {(error.strerror or 'unknown').lower()}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"the heat file {name} is not JSON; give one that Colibri has recorded") from None
    if not isinstance(found, dict) or not isinstance(found.get("layers"), list):
        raise UsageError(f'the heat file {name} has no list "layers"; give one that Colibri has recorded')
    if found.get("model_digest") != digest:
        raise UsageError(f"the heat file {name} was recorded with another model file; record it with this one")
    layers = found["layers"]
    if len(layers) != n_layers or not all(isinstance(row, list) and len(row) == n_experts for row in layers):
        raise UsageError(f"the heat file {name} is not of {n_layers} layers with {n_experts} experts each")
    if not all(_is_heat(value) for row in layers for value in row):
        raise UsageError(f"the heat file {name} holds something that is no number of 0 or more")
    return [[float(value) for value in row] for row in layers]


def even_heat(n_layers: int, n_experts: int) -> Heat:
    """Every expert alike: where nothing was recorded."""
    return [[1.0] * n_experts for _ in range(n_layers)]


def _is_heat(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300
