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

    # What stands before the tables stays as it is.
    parts = [GRIDS.read_text().partition("\n\n\nIQ2_XXS")[0] + "\n"]
    parts += [table(getattr(quants, name), name.removesuffix("_S") if name == "IQ1_S" else name, times)
              for name, times in TABLES.items()]  # fmt: skip
    GRIDS.write_text("".join(parts))
    found = {}
    for name in TYPES:
        raw = sample(name)
        found[name] = digest(quants.dequantize(raw.reshape(len(raw), -1), GGMLQuantizationType[name]))
    VECTORS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
