"""Every tensor type that Colibri computes with: number, name, block size, and the module that holds its loops.

Not here: the loops. Importing this file costs no numba, so that the planner and `inspect` start at once.
Source: the type numbers of GGUF files as ggml and its forks write them; numbers are not shared between forks.
"""

from dataclasses import dataclass

from engine.errors import BadModelFile, UnsupportedTensorType


@dataclass(frozen=True, slots=True)
class QuantType:
    """One row of the table: a block holds `items` values in `n_bytes` bytes; `module` has its kernels."""

    id: int
    name: str
    items: int
    n_bytes: int
    module: str

    def tensor_bytes(self, n_rows: int, k: int) -> int:
        """Bytes in a file of rows of `k` values; BadModelFile when blocks do not fill a row."""
        in_memory = n_rows * self.row_bytes(k)
        return n_rows * k // 4 + FOLDED_TAIL if self.is_folded else in_memory

    @property
    def is_folded(self) -> bool:
        """Whether blocks as `module` has them exist in memory only."""
        return self.name in FOLDED

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` values in memory; BadModelFile when blocks do not fill the row."""
        if k <= 0 or k % self.items:
            raise BadModelFile(f"a row of {k} values cannot be {self.name}: its blocks hold {self.items} values each")
        return k // self.items * self.n_bytes


_ROWS = (
    QuantType(0, "F32", 1, 4, "engine.quants.f32"),
    QuantType(1, "F16", 1, 2, "engine.quants.f16"),
    QuantType(2, "Q4_0", 32, 18, "engine.quants.q4_0"),
    QuantType(3, "Q4_1", 32, 20, "engine.quants.q4_1"),
    QuantType(6, "Q5_0", 32, 22, "engine.quants.q5_0"),
    QuantType(7, "Q5_1", 32, 24, "engine.quants.q5_1"),
    QuantType(8, "Q8_0", 32, 34, "engine.quants.q8_0"),
    QuantType(10, "Q2_K", 256, 84, "engine.quants.q2_k"),
    QuantType(11, "Q3_K", 256, 110, "engine.quants.q3_k"),
    QuantType(12, "Q4_K", 256, 144, "engine.quants.q4_k"),
    QuantType(13, "Q5_K", 256, 176, "engine.quants.q5_k"),
    QuantType(14, "Q6_K", 256, 210, "engine.quants.q6_k"),
    QuantType(16, "IQ2_XXS", 256, 66, "engine.quants.iq2_xxs"),
    QuantType(17, "IQ2_XS", 256, 74, "engine.quants.iq2_xs"),
    QuantType(18, "IQ3_XXS", 256, 98, "engine.quants.iq3_xxs"),
    QuantType(19, "IQ1_S", 256, 50, "engine.quants.iq1_s"),
    QuantType(20, "IQ4_NL", 32, 18, "engine.quants.iq4_nl"),
    QuantType(21, "IQ3_S", 256, 110, "engine.quants.iq3_s"),
    QuantType(22, "IQ2_S", 256, 82, "engine.quants.iq2_s"),
    QuantType(23, "IQ4_XS", 256, 136, "engine.quants.iq4_xs"),
    QuantType(29, "IQ1_M", 256, 56, "engine.quants.iq1_m"),
    QuantType(30, "BF16", 1, 2, "engine.quants.bf16"),
    QuantType(34, "TQ1_0", 256, 54, "engine.quants.tq1_0"),
    QuantType(35, "TQ2_0", 256, 66, "engine.quants.tq2_0"),
    QuantType(39, "MXFP4", 32, 17, "engine.quants.mxfp4"),
)
TYPES: dict[str, QuantType] = {row.name: row for row in _ROWS}
# In a file two bits a weight and once, behind the whole tensor, its scale (i2_s.py).
FOLDED: dict[str, QuantType] = {"I2_S": QuantType(36, "I2_S", 256, 68, "engine.quants.i2_s")}
FOLDED_TAIL = 32
_BY_ID = {row.id: row for row in (*_ROWS, *FOLDED.values())}

# Known elsewhere, computed by nobody here: the words let a user see whose file this is.
_ELSEWHERE: dict[int, str] = {
    4: "Q4_2, a format that llama.cpp removed in 2023",
    5: "Q4_3, a format that llama.cpp removed in 2023",
    9: "Q8_1",
    15: "Q8_K",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    31: "Q4_0_4_4, a row layout that llama.cpp removed: use a Q4_0 file",
    32: "Q4_0_4_8, a row layout that llama.cpp removed: use a Q4_0 file",
    33: "Q4_0_8_8, a row layout that llama.cpp removed: use a Q4_0 file",
    37: "I8_S of BitNet forks, or IQ4_NL_4_8, a row layout that llama.cpp removed: use an IQ4_NL file",
    38: "TL1 of BitNet forks, or IQ4_NL_8_8, a row layout that llama.cpp removed: use an IQ4_NL file",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0 of newer llama.cpp, or a fork's own type",
    133: "Q6_0 of ik_llama.cpp",
    134: "IQ1_BN of ik_llama.cpp",
    135: "IQ2_BN of ik_llama.cpp",
    137: "IQ2_K of ik_llama.cpp",
    138: "IQ3_K of ik_llama.cpp",
    139: "IQ4_K of ik_llama.cpp",
    140: "IQ5_K of ik_llama.cpp",
    141: "IQ6_K of ik_llama.cpp",
    144: "IQ4_KS of ik_llama.cpp",
    145: "IQ2_KS of ik_llama.cpp",
    146: "IQ4_KSS of ik_llama.cpp",
}


def by_name(name: str) -> QuantType:
    """The row of a name."""
    return TYPES.get(name) or FOLDED[name]


def by_id(number: int, architecture: str = "") -> QuantType:
    """The row of a type number; UnsupportedTensorType names the number and, where known, whose it is.

    In a file of an architecture of BitNet's fork, 39 means another type than elsewhere.
    """
    if number == 39 and architecture.startswith("bitnet"):
        raise UnsupportedTensorType("type 39 in a bitnet file is TL2 of BitNet forks, which is not supported; use I2_S")
    row = _BY_ID.get(number)
    if row is None:
        known = _ELSEWHERE.get(number)
        what = f"type {number} ({known})" if known else f"type {number}, a number of no known format,"
        raise UnsupportedTensorType(f"{what} is not supported; supported are {', '.join((*TYPES, *FOLDED))}")
    return row
