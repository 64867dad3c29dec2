"""Which layers see a window of positions and which see all, by a file's metadata. Not here: keeping them (cache/)."""

from engine.errors import BadModelFile
from engine.models.keys import MAX_CTX, MAX_LAYERS, Keys

_SIZE, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def windows(keys: Keys, period: int, default: int | None = None) -> tuple[int, ...]:
    """For each layer how many positions a row sees, itself included; 0: all, in every `period`-th layer (0: in none).

    The file's pattern wins: another period, or for each layer whether it has the window. `default`: the size where the
    file names none; None is a BadModelFile. A size of 0 is no window.
    """
    size, n = keys.count(_SIZE, 0, 1 << 32, default), keys.n_blocks
    pattern = keys.gguf.metadata.get(keys.prefix + _PATTERN)
    if isinstance(pattern, list):
        keys.ignore(_PATTERN)
        if len(pattern) != n or not all(isinstance(has, bool | int) and has in (0, 1) for has in pattern):
            raise BadModelFile(f"{keys.prefix}{_PATTERN} is no list of {n} times true or false, one per layer")
        found = [size if has else 0 for has in pattern]
    else:
        period = keys.count(_PATTERN, 0, MAX_LAYERS, period)
        found = [0 if period and i % period == period - 1 else size for i in range(n)]
    return tuple(min(window, MAX_CTX) for window in found) if any(found) else ()
