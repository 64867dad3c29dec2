"""Tiny models of each family as transformers computes them, drawn from a seed, and as GGUF files. Not here: engines."""

from tests.families.beside import BESIDE
from tests.families.dense import DENSE
from tests.families.family import Family
from tests.families.mixtures import MIXTURES

# Name -> row: the test data of a family.
FAMILIES: dict[str, Family] = {**DENSE, **MIXTURES, **BESIDE}
