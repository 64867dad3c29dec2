"""Writes what comes from the `gguf` package: tables of weights, and digests of what it decodes, for a test.

    pip install gguf; python -m scripts.gguf_package      writes engine/quants/grids.py and tests/vectors/quants.json

The tables are data that nothing can be derived from; the digests are the independent truth about every quant type.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from engine.quants.registry import TYPES
from tests.engine.quants.samples import digest, sample

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "tests" / "vectors" / "quants.json"
GRIDS = ROOT / "engine" / "quants" / "grids.py"
# The package's class, and what its values are multiplied with here.
TABLES = {"IQ2_XXS": 1, "IQ2_XS": 1, "IQ2_S": 1, "IQ3_XXS": 1, "IQ3_S": 1, "IQ1_S": 8}
HEAD = '''"""The tables of weights that the IQ1, IQ2 and IQ3 formats choose from, as data. Not here: their formats.

An entry is eight weights (IQ3: four) of a few sizes; here are the sizes' indices, low bits first, in base 85. Those of
IQ1 are eight times its values. Written by scripts/gguf_package.py from the `gguf` package (MIT licence).
"""

import base64


def _words(count: int, weights: tuple[int, ...], width: int, text: str) -> tuple[int, ...]:
    """`count` entries as whole numbers, a byte for each weight."""
    n_bits = (len(weights) - 1).bit_length()
    packed = int.from_bytes(base64.b85decode("".join(text.split())), "little")
    mask, words = (1 << n_bits) - 1, []
    for _ in range(count):
        words.append(sum(weights[packed >> n_bits * i & mask] % 256 << 8 * i for i in range(width)))
        packed >>= n_bits * width
    return tuple(words)
'''


def table(kind: Any, name: str, times: int) -> str:
    """The Python of one table."""
    kind.init_grid()
    (count, width), sizes = kind.grid_shape, kind.grid_map
    which = np.searchsorted(sizes, np.asarray(kind.grid).reshape(-1))
    bits = which[:, None] >> np.arange((len(sizes) - 1).bit_length()) & 1
    text = base64.b85encode(np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()).decode()
    lines = "\n".join("    " + text[i : i + 112] for i in range(0, len(text), 112))
    return f'\n\n{name} = _words({count}, {tuple(times * s for s in sizes)}, {width}, """\n{lines}\n""")\n'


def main() -> None:
    from gguf import GGMLQuantizationType, quants

    parts = [table(getattr(quants, name), name.removesuffix("_S") if name == "IQ1_S" else name, times)
             for name, times in TABLES.items()]  # fmt: skip
    GRIDS.write_text(HEAD + "".join(parts))
    found = {}
    for name in TYPES:
        raw = sample(name)
        found[name] = digest(quants.dequantize(raw.reshape(len(raw), -1), GGMLQuantizationType[name]))
    VECTORS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
