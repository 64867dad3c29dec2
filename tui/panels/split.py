"""Memory now and after a swap, as two bars of letters. Not here: the map of the Memory screen, the plan's numbers.

W weights, K keys and values, c the engine around them, = page cache, o other programs, . free. Letters stay letters in
every tier; colours only repeat them.
"""

from dataclasses import dataclass

from tui.panels.pieces import Piece
from tui.snap import Facts

LETTERS = (("weights", "W", "part1"), ("kv", "K", "part2"), ("engine", "c", "part3"), ("cache", "=", "part4"),
           ("other", "o", "part5"))  # fmt: skip


@dataclass(frozen=True)
class Split:
    """Who has how many bytes of `total`; what nobody has is free."""

    total: float
    weights: float = 0.0
    kv: float = 0.0
    engine: float = 0.0
    cache: float = 0.0
    other: float = 0.0

    @property
    def used(self) -> float:
        """What the engine's process takes."""
        return self.weights + self.kv + self.engine


def now(state: Facts) -> Split | None:
    """As the state document has it; None when it does not say how much memory there is."""
    machine, worker = state.at("memory.machine"), state.at("worker")
    total = machine.num("total")
    if not total:
        return None
    total = min(total, machine.num("limit") or total)
    weights, kv = worker.num("weights_bytes") or 0.0, worker.num("kv_bytes") or 0.0
    engine = max(0.0, (state.num("memory.worker.rss_bytes") or 0.0) - weights - kv)
    cache = machine.num("cached") or 0.0
    free = machine.num("free")
    if free is None:
        free = max(0.0, (machine.num("available") or 0.0) - cache)
    other = max(0.0, total - free - cache - weights - kv - engine)
    return Split(total, weights, kv, engine, cache, other)


def after(before: Split, plan: Facts) -> Split:
    """As the plan has it: the old engine gone, the new one there, the page cache giving way where it must."""
    weights, kv, engine = (plan.num(f"{key}_bytes") or 0.0 for key in ("weights", "kv", "engine"))
    room = max(0.0, before.total - before.other - weights - kv - engine)
    return Split(before.total, weights, kv, engine, min(before.cache, room), before.other)


def bar(split: Split, width: int) -> list[Piece]:
    """The bar in brackets, `width` cells in all. What is there at all gets a letter; the sum never passes the end."""
    inside = max(0, width - 2)
    pieces: list[Piece] = [("[", "")]
    left = inside
    for name, letter, meaning in LETTERS:
        part = getattr(split, name)
        cells = min(left, max(round(part / split.total * inside), 1 if part > 0 else 0))
        left -= cells
        pieces.append((letter * cells, meaning))
    return [*(p for p in pieces if p[0]), ("." * left, "dim"), ("]", "")]
