"""How many multiply-adds a cycle a tile kernel can do at most on an ISA level, counted from execution ports.

The count is of the least 256-bit instructions for one token, one panel (eight rows) and 32 columns, 256 multiply-adds:

    dots       eight products of 32 bytes each with the sums they need: pmaddubsw gives 16-bit pairs, which are added
               while they cannot overflow (8 times for up to 4 bits, 4 for 5-bit weights, 2 for 6-bit) and then
               widened by pmaddwd; signed bytes need a sign flip before and a pmaddwd after each; dpbusd (AVX-VNNI,
               AVX-512) and sdot (NEON) add four products into 32 bits at once
    join       a step of the f32 chain, which the same bits at every width demand for each 32 columns: a multiply and
               one or two fused multiply-adds, a conversion of each whole number; what the totals start from; for Q6_K
               two scales as whole numbers before
    loads      eight 4-byte broadcasts of activations, scale, offset and mark of the block, and the token's accumulator,
               which is also stored; 512-bit registers hold two panels, which share the broadcasts

A core multiplies 256 bits (whole numbers and floats together) twice a cycle, loads twice, and starts 4 vector
instructions a cycle on AMD, 3 on Intel; the scarcest of the three is the limit. Seen on Zen 4: pmaddubsw, dpbusd and
mulps in any mixture 2.0 a cycle, broadcasts to 256 or 512 bits 2.0; a plain C loop reaches what is counted (197 GMAC/s
of Q4_0, counted 188 at the 3.67 GHz measured before it). v2 and NEON have half the width: twice the instructions, and
on v2 each broadcast is a load and a shuffle. What decoding weights costs is left out: all tokens of a tile share it.
Cycles become seconds by the clock, measured as a chain of multiply-adds (readers.py): 4 cycles a link. Not here: times.
"""

from dataclasses import dataclass

MACS = 256.0
HALF_WIDTH, FOUR, PAIRS = ("v2", "neon"), ("vnni", "avx512", "neon"), ("avx512",)
BROADCASTS = 8 + 3  # of activations, and of what a block says once


@dataclass(frozen=True, slots=True)
class Cost:
    """256-bit instructions per 256 multiply-adds; `other` are vector instructions that do not multiply."""

    multiplies: float
    other: float
    loads: float = BROADCASTS + 1

    def cycles(self, starts: int) -> dict[str, float]:
        """Cycles by the resource they are spent on; the largest is the limit."""
        return {"multiplies": self.multiplies / 2, "loads": self.loads / 2, "starts": self.every / starts}

    @property
    def every(self) -> float:
        return self.multiplies + self.other


# Class of a type's weights, and (multiplies, other) of its join.
_TYPES = {
    "Q4_0": ("u4", 2, 2),
    "Q4_1": ("u4", 3, 2),
    "Q5_0": ("u5", 2, 2),
    "Q5_1": ("u5", 3, 2),
    "Q8_0": ("s8", 2, 2),
    "Q4_K": ("u4", 3, 2),
    "Q5_K": ("u5", 3, 2),
    "Q6_K": ("u6", 4, 5),
    "TQ2_0": ("u4", 2, 2),
    "Q2_K": ("u6", 7, 5),  # two whole-number products each for scales and minima
    "Q3_K": ("u6", 4, 5),
    "IQ4_NL": ("s8", 2, 2),
    "IQ4_XS": ("s8", 2, 2),
    "MXFP4": ("u5", 2, 2),
    "TQ1_0": ("u4", 2, 2),
}
# (multiplies, other) of the dots of 32 columns by class, and where one instruction sums four products.
_DOTS = {"u4": (9, 7), "u5": (10, 7), "u6": (12, 7), "s8": (16, 15)}
_AT_ONCE = (8, 0)


def cost(type_name: str, level: str) -> Cost | None:
    """The count for a type on a level of engine/kernels/isa.py; None for floats and for types of looked-up grids."""
    if type_name not in _TYPES:
        return None
    kind, times, others = _TYPES[type_name]
    multiplies, other = _AT_ONCE if level in FOUR else _DOTS[kind]
    found = Cost(multiplies + times, other + others, BROADCASTS / (2 if level in PAIRS else 1) + 1)
    if level not in HALF_WIDTH:
        return found
    # One broadcast serves both halves; the accumulator is loaded twice.
    return Cost(2 * found.multiplies, 2 * found.other + 8 * (level == "v2"), found.loads + 1)


def macs_per_cycle(type_name: str, level: str, amd: bool) -> tuple[float, str] | None:
    """The limit of one core and the resource it comes from."""
    found = cost(type_name, level)
    if found is None:
        return None
    cycles = found.cycles(4 if amd else 3)
    scarce = max(cycles, key=lambda name: cycles[name])
    return MACS / cycles[scarce], scarce
