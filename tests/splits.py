"""A model in several files, made from one in a single file. Not here: what is done with it."""

from collections.abc import Mapping
from pathlib import Path

from engine.gguf.reader import read_gguf
from engine.gguf.writer import Tensor, write_gguf


def split(
    whole: Path, folder: Path, tensors: tuple[int, ...], changes: Mapping[int, Mapping[str, object]] = {}
) -> list[Path]:
    """Part i in `folder` has `tensors`[i] of the tensors in the file's order, the last one all that are left; the first
    has the metadata. `changes`: part number from 0 -> keys set otherwise, None leaves one out."""
    gguf = read_gguf(whole)
    infos = sorted(gguf.tensors.values(), key=lambda info: info.offset)
    kinds = {"split.no": "uint16", "split.count": "uint16", "split.tensors.count": "int32"}
    paths, begin = [], 0
    for i, n in enumerate(tensors):
        end = begin + n if i + 1 < len(tensors) else len(infos)
        keys: dict[str, object] = dict(gguf.metadata) if i == 0 else {}
        keys |= {"split.no": i, "split.count": len(tensors), "split.tensors.count": len(infos)} | changes.get(i, {})
        keys = {key: value for key, value in keys.items() if value is not None}
        data: list[Tensor] = []
        with whole.open("rb") as file:
            for info in infos[begin:end]:
                file.seek(info.offset)
                data.append((info.name, info.dims, info.type.name, file.read(info.n_bytes)))
        path = folder / f"{whole.stem}-{i + 1:05}-of-{len(tensors):05}.gguf"
        paths.append(write_gguf(path, keys, data, {**gguf.kinds, **kinds}))  # type: ignore[arg-type]
        begin = end
    return paths
