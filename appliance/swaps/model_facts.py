"""Facts of model files, read once per version of a file, so that a long list of profiles costs no second reading. Not
here: where a file lies (model_files.py), what the facts decide (engine/planner.py).
"""

import threading
from collections import OrderedDict
from pathlib import Path

from engine.errors import BadModelFile, ColibriError
from engine.footprint import ModelFacts
from engine.gguf.layout import quoted
from engine.gguf.reader import read_gguf
from engine.gguf.split import siblings
from engine.models.shape import DecoderShape
from engine.text import open_text

MOST_KEPT = 256  # a few hundred bytes each

Identity = tuple[int, ...]
_kept: OrderedDict[tuple[str, Identity], ModelFacts | ColibriError] = OrderedDict()
_lock = threading.Lock()


def identity(path: Path) -> Identity:
    """What tells one version of a file, with all parts of its model, from another without reading it; empty when one is
    not there."""
    try:
        found = [part.stat() for part in siblings(path)]
    except (OSError, ValueError):
        return ()
    return tuple(fact for each in found for fact in (each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns))


def facts_of(path: Path) -> ModelFacts:
    """The facts of a file that can be loaded and talked to; else BadModelFile and its kin, each time the same."""
    key = str(path), identity(path)
    with _lock:
        known = _kept.get(key)
        if known is not None:
            _kept.move_to_end(key)
    if known is None:
        known = _read(path)
        with _lock:
            # A file that cannot be opened now (rights, a disk that is away) may be another time, with the same times.
            if not isinstance(known, ColibriError) or _is_lasting(path):
                _kept[key] = known
            while len(_kept) > MOST_KEPT:
                _kept.popitem(last=False)
    if isinstance(known, ColibriError):
        raise type(known)(known.message)
    return known


def _read(path: Path) -> ModelFacts | ColibriError:
    try:
        gguf = read_gguf(path)
        facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    except BadModelFile as error:
        return error
    try:
        open_text(gguf)  # without words nobody can be answered
    except BadModelFile as error:
        return type(error)(f"{quoted(path.name, 120)}: {error.message}")
    return facts


def _is_lasting(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return len(file.read(1)) == 1
    except (OSError, ValueError):
        return False
