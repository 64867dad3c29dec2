"""Which architectures run, and the module of each. Not here: importing those modules, which costs numba."""

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile

# general.architecture -> module that builds the program
ARCHITECTURES = {"llama": "engine.models.llama", "qwen3moe": "engine.models.qwen3moe"}


def architecture(gguf: GgufFile) -> str:
    """The file's architecture, one of ARCHITECTURES; UnsupportedModel lists the known ones."""
    name = gguf.metadata.get("general.architecture")
    if name is None:
        raise BadModelFile("the metadata lack general.architecture; the file is no language model or is incomplete")
    if not isinstance(name, str):
        raise BadModelFile(f"general.architecture is of kind {gguf.kinds['general.architecture']}, not a string")
    part = gguf.metadata.get("general.type", "model")
    if part != "model":
        raise UnsupportedModel(f"this file is a part of a model (general.type {quoted(str(part))}), not a whole one")
    _refuse_split(gguf)
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModel(f"the architecture {quoted(name)} is not supported; supported: {known}")
    return name


def _refuse_split(gguf: GgufFile) -> None:
    n = gguf.metadata.get("split.count", 0)
    if isinstance(n, int) and n > 1:
        no = gguf.metadata.get("split.no", 0)
        which = no + 1 if isinstance(no, int) else "?"
        raise UnsupportedModel(
            f"this is part {which} of a model in {n} files; join them first (llama-gguf-split --merge)"
        )
