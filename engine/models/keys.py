"""Typed, bounded reads of a file's metadata, and a refusal of every key that nobody read. Not here: what keys mean."""

import math

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile, Value

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 4096
MAX_EXPERTS = 4096
MAX_CTX = 1 << 30
INTS = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}
FLOATS = {"float32", "float64"}


class Keys:
    """The keys under one architecture's prefix; names are given without it ("block_count")."""

    def __init__(self, gguf: GgufFile, architecture: str) -> None:
        self.gguf, self.architecture = gguf, architecture
        self.prefix = architecture + "."
        self.seen: set[str] = set()

    @property
    def n_blocks(self) -> int:
        """Layers in the file, those that nobody computes included."""
        return self.count("block_count", 1, MAX_LAYERS)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.gguf.metadata

    def was_read(self, name: str) -> bool:
        """Whether somebody has asked for the key, and so answers for what it says."""
        return self.prefix + name in self.seen

    def count(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer from `low` to `high`; without a default the key must be there."""
        value, kind = self._get(name, default)
        if kind not in INTS or isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, kind, "an integer")
        if not low <= value <= high:
            raise BadModelFile(f"{self.prefix}{name} is {value}; {low} to {high} is possible")
        return value

    def counts(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """As `count`, but the file may give one number per layer, if all are the same."""
        value = self.gguf.metadata.get(self.prefix + name)
        if not isinstance(value, list):
            return self.count(name, low, high, default)
        self.seen.add(self.prefix + name)
        kind = self.gguf.kinds[self.prefix + name]
        if kind.removeprefix("array[").removesuffix("]") not in INTS:
            raise self._wrong(name, value, kind, "integers")
        if len(value) != (n := self.n_blocks):
            raise BadModelFile(f"{self.prefix}{name} has {len(value)} numbers; {n}, one per layer, are expected")
        for number in value:
            if not isinstance(number, int) or not low <= number <= high:
                raise BadModelFile(f"{self.prefix}{name} holds {number}; {low} to {high} is possible")
        if len(set(map(str, value))) > 1:
            raise UnsupportedModel(f"{self.prefix}{name} differs between layers; only models with equal layers run")
        first = value[0]
        assert isinstance(first, int)
        return first

    def real(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite float above `low` and up to `high`."""
        value, kind = self._get(name, default)
        if kind not in FLOATS or not isinstance(value, float):
            raise self._wrong(name, value, kind, "a float")
        if not math.isfinite(value) or not low < value <= high:
            raise BadModelFile(f"{self.prefix}{name} is {value}; above {low:g} and up to {high:g} is possible")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value, kind = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, kind, "true or false")
        return value

    def text(self, name: str, default: str) -> str:
        value, kind = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, kind, "a string")
        return value

    def ignore(self, *names: str) -> None:
        """These keys change nothing that this architecture computes."""
        self.seen.update(self.prefix + name for name in names)

    def neutral(self, name: str, *values: Value) -> None:
        """The key may be absent or hold one of `values`, which leave the maths as it is; else UnsupportedModel."""
        found = self.gguf.metadata.get(self.prefix + name, values[0])
        self.seen.add(self.prefix + name)
        if not any(_same(found, value) for value in values):
            raise UnsupportedModel(
                f"{self.prefix}{name} is {_shown(found)}, which the {self.prefix[:-1]} model here does not compute;"
                " loading it would give wrong answers"
            )

    def refuse_unread(self) -> None:
        """UnsupportedModel for a key under the prefix that was not read, unless its value says "off"."""
        for key, value in self.gguf.metadata.items():
            if key.startswith(self.prefix) and key not in self.seen and not _is_off(value):
                raise UnsupportedModel(
                    f"the key {quoted(key)} (= {_shown(value)}) is not known here and may change the model's maths;"
                    " loading it could give wrong answers"
                )

    def _get(self, name: str, default: Value | None) -> tuple[Value, str]:
        key = self.prefix + name
        self.seen.add(key)
        if key in self.gguf.metadata:
            return self.gguf.metadata[key], self.gguf.kinds[key]
        if default is None:
            raise BadModelFile(f"the metadata lack {key}; the file is incomplete, get the model from another source")
        return default, {int: "uint32", float: "float32", str: "string", bool: "bool"}[type(default)]

    def _wrong(self, name: str, value: Value, kind: str, expected: str) -> BadModelFile:
        return BadModelFile(f"{self.prefix}{name} is {_shown(value)} of kind {kind}; {expected} is expected")


def _same(found: Value, value: Value) -> bool:
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, float) and isinstance(value, float):
        return math.isclose(found, value, rel_tol=1e-6)  # the file holds float32
    return found == value


def _is_off(value: Value) -> bool:
    if isinstance(value, list):
        return all(_is_off(v) for v in value)
    return value in (0, "", "none")


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return quoted(value, 40)
    return str(value) if not isinstance(value, list) else f"an array of {len(value)}"
