"""A model in several files, read as one: which files those are and where each lies in the whole. Not here: headers.

    big-00001-of-00003.gguf    all metadata, often no tensors    begins at 0
    big-00002-of-00003.gguf    tensors                           begins at the next multiple of 4096
    big-00003-of-00003.gguf    tensors                           …

An offset counts in the whole, so that one map and one number are enough for whoever reads weights.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from engine.errors import BadModelFile
from engine.gguf.layout import padded, quoted
from engine.gguf.reader import GgufFile, Part, TensorInfo

NAMED = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
PAGE = 4096  # a map and a direct read begin at multiples of it
MOST_PARTS = 1024


def siblings(path: Path) -> tuple[Path, ...]:
    """All parts of the model that a file is named to be one of, the first one first; the file alone for other names."""
    found = NAMED.fullmatch(path.name)
    if not found or not 1 <= int(found[2]) <= int(found[3]) <= MOST_PARTS:
        return (path,)
    stem, _, count = found.groups()
    return tuple(path.with_name(f"{stem}-{i:05}-of-{count}.gguf") for i in range(1, int(count) + 1))


def model_name(path: Path) -> str:
    """A file's name without what says that it is GGUF, and which part."""
    found = NAMED.fullmatch(path.name)
    return found[1] if found else path.name.removesuffix(".gguf")


def one_each(paths: Iterable[Path]) -> list[Path]:
    """The files, of a model in several only the first that is there."""
    seen: set[tuple[Path, ...]] = set()
    out: list[Path] = []
    for path in paths:
        whole = siblings(path)
        if whole not in seen:
            seen.add(whole)
            out.append(path)
    return out


def joined(gguf: GgufFile, parse: Callable[[Path], GgufFile]) -> GgufFile:
    """The whole model that a file is a part of, the file itself if it is no part; `parse` reads the other headers.
    BadModelFile when a part is missing or belongs to another model."""
    count = gguf.metadata.get("split.count", 0)
    if count in (0, 1):
        return gguf
    paths = siblings(gguf.path)
    if len(paths) != count:
        raise BadModelFile(
            f"it is part of a model in {quoted(str(count))} files (split.count), which its name does not say; call the"
            " parts NAME-00001-of-00003.gguf and so on, as they were when published"
        )
    parts = [gguf if path.name == gguf.path.name else _part(path, paths, parse) for path in paths]
    for number, part in enumerate(parts):
        found = part.metadata.get("split.no"), part.metadata.get("split.count")
        if found != (number, count):
            raise BadModelFile(
                f"{quoted(part.path.name, 120)} calls itself part {quoted(str(found[0]))} of {quoted(str(found[1]))}"
                f" (split.no, split.count); {number} of {count} is expected, get the parts of one model"
            )
    return _whole(parts)


def _part(path: Path, paths: tuple[Path, ...], parse: Callable[[Path], GgufFile]) -> GgufFile:
    try:
        return parse(path)
    except FileNotFoundError:
        raise BadModelFile(
            f"its part {quoted(path.name, 120)} is not beside it; put all {len(paths)} parts into one folder"
        ) from None
    except BadModelFile as error:
        raise type(error)(f"its part {quoted(path.name, 120)}: {error}") from None


def _whole(parts: list[GgufFile]) -> GgufFile:
    tensors: dict[str, TensorInfo] = {}
    places: list[Part] = []
    begin = 0
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise BadModelFile(f"the tensor {quoted(name)} stands in two of its parts; get the parts of one model")
            tensors[name] = replace(tensor, offset=begin + tensor.offset)
        places.append(Part(part.path, begin, part.n_bytes))
        begin = padded(begin + part.n_bytes, PAGE)
    told = parts[0].metadata.get("split.tensors.count", len(tensors))
    if told != len(tensors):
        raise BadModelFile(
            f"its parts hold {len(tensors)} tensors, not {quoted(str(told))}; get the parts of one model"
        )
    last = places[-1]
    return replace(parts[0], tensors=tensors, n_bytes=last.begin + last.n_bytes, parts=tuple(places))
