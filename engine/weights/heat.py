"""How often each expert was used, in a file: recorded while a model runs, read by the next run and by relayout.

    {"model_digest": "…", "layers": [[heat of expert 0, 1, …] for each layer with experts]}      heat: any number ≥ 0

Not here: counting (kernels/fetch.py), what is done about it.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from engine.errors import UsageError
from engine.gguf.layout import quoted

Heat = list[list[float]]
MOST_BYTES = 64 << 20
KEPT = 0.5  # what heat of an earlier run is worth: what is asked now counts more


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


def heat_path(folder: Path, digest: str) -> Path:
    """The file of a model with this digest."""
    return folder / f"{digest[:32]}.json"


def chances(heat: Heat, n_used: int) -> Heat:
    """The chance that a token uses it, of each expert; a layer without heat is even."""
    found = []
    for row in heat:
        total = sum(row)
        shares = [value / total for value in row] if total > 0 else [1 / len(row)] * len(row)
        found.append([min(1.0, share * n_used) for share in shares])
    return found


def even_heat(n_layers: int, n_experts: int) -> Heat:
    """Every expert alike: where nothing was recorded."""
    return [[1.0] * n_experts for _ in range(n_layers)]


def _is_heat(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300


def kept_heat(path: Path, n_layers: int, n_experts: int, digest: str) -> Heat | None:
    """What an earlier run of this model has left, worth half of what it was; None if there is nothing to be used."""
    try:
        found = read_heat(path, n_layers, n_experts, digest)
    except UsageError:  # of another model with the same name, damaged, or not there yet: it is only heat
        return None
    return [[KEPT * value for value in row] for row in found]


def write_heat(path: Path, heat: Heat, digest: str) -> bool:
    """Keep it for the next run, whole or not at all; False when the disk does not want it."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    layers = [[round(value, 4) for value in row] for row in heat]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"model_digest": digest, "layers": layers}))
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        return False
    return True
