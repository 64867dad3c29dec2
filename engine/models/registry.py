"""Which architectures run, and the family of each: a module with `read` and `Model`. Not here: what is in a family.

Importing a family costs no numba: planning asks it for its numbers and its tensors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile

if TYPE_CHECKING:
    from engine.models.decoder import Decoder
    from engine.models.keys import Keys
    from engine.models.shape import DecoderShape

# general.architecture -> module of the family
ARCHITECTURES = {
    "bert": "engine.models.bert",
    "bitnet": "engine.models.bitnet",
    "bitnet-b1.58": "engine.models.bitnet",
    "cohere2": "engine.models.cohere",
    "command-r": "engine.models.cohere",
    "deepseek2": "engine.models.deepseek2",
    "ernie4_5": "engine.models.llama",
    "exaone4": "engine.models.exaone4",
    "gemma": "engine.models.gemma",
    "gemma2": "engine.models.gemma",
    "gemma3": "engine.models.gemma",
    "glm4": "engine.models.glm4",
    "glm4moe": "engine.models.glm4moe",
    "gpt-oss": "engine.models.gptoss",
    "granite": "engine.models.granite",
    "granitemoe": "engine.models.granite",
    "internlm2": "engine.models.llama",
    "llama": "engine.models.llama",
    "minicpm": "engine.models.granite",
    "nomic-bert": "engine.models.bert",
    "olmo2": "engine.models.olmo2",
    "olmoe": "engine.models.olmoe",
    "phi3": "engine.models.phi3",
    "qwen2": "engine.models.qwen2",
    "qwen2moe": "engine.models.qwen2moe",
    "qwen3": "engine.models.qwen3",
    "qwen3moe": "engine.models.qwen3",
    "seed_oss": "engine.models.qwen2",
    "smollm3": "engine.models.smollm3",
    "stablelm": "engine.models.stablelm",
    "starcoder2": "engine.models.starcoder2",
}


class Family(Protocol):
    """What a family's module has: its numbers out of the metadata, and the model that claims and records."""

    Model: "type[Decoder]"

    def read(self, keys: "Keys") -> "DecoderShape": ...


def family(name: str) -> Family:
    """The module of one of ARCHITECTURES."""
    return cast(Family, import_module(ARCHITECTURES[name]))


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
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModel(f"the architecture {quoted(name)} is not supported; supported: {known}")
    return name
