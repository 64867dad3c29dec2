"""The row table of one step, where the kernels read it: (sequence, position, token, wants logits). Not here: who gets
rows (sequence.py), what is done with them (kernels/).

Rows of one sequence are neighbours and ascend; a row's pages are its sequence's. Rows whose logits are wanted are
counted in order of asking: the i-th has logits row i.
"""

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvSequence
from engine.kernels import step
from engine.kernels.regions import address_of


class RowTable:
    """Up to max_rows rows, logits of up to max_out of them; `words` is the step block. A row sees what is before it
    and itself, or, where none `is_causal`, all rows that its sequence has after the step."""

    def __init__(self, words: NDArray[np.int64], max_rows: int, max_out: int, is_causal: bool = True) -> None:
        self.n_rows = self.n_out = 0
        self.max_rows, self.max_out = max_rows, max_out
        self._words = words
        self._tokens, self._positions, self._pages = (np.zeros(max_rows, np.int64) for _ in range(3))
        self._seen = self._positions if is_causal else np.zeros(max_rows, np.int64)
        self._out_rows, self._samplers = np.zeros(max_out, np.int64), np.zeros(max_out, np.int64)
        for word, array in (
            (step.TOKENS, self._tokens), (step.POSITIONS, self._positions), (step.PAGES, self._pages),
            (step.SEEN, self._seen), (step.OUT_ROWS, self._out_rows), (step.SAMPLERS, self._samplers),
        ):  # fmt: skip
            words[word // 8] = address_of(array)

    def clear(self) -> None:
        """An empty step."""
        self.n_rows = self.n_out = 0

    def add(self, kv: KvSequence, ids: NDArray[np.int64]) -> int:
        """Rows for `ids` at the sequence's end, whose pages become its own; returns the first. KvFull adds nothing."""
        first, end = self.n_rows, self.n_rows + len(ids)
        assert end <= self.max_rows, (end, self.max_rows)
        kv.reserve(len(ids))
        self._tokens[first:end] = ids
        self._positions[first:end] = np.arange(kv.length, kv.length + len(ids))
        if self._seen is not self._positions:
            self._seen[first:end] = kv.length + len(ids) - 1
        self._pages[first:end] = kv.address
        self.n_rows = end
        return first

    def want(self, row: int, sampler: int = 0) -> int:
        """Ask for the logits of a row and, with the address of a sampler's record, for a token; returns their row."""
        assert 0 <= row < self.n_rows and self.n_out < self.max_out, (row, self.n_rows, self.n_out, self.max_out)
        out = self.n_out
        self._out_rows[out], self._samplers[out] = row, sampler
        self.n_out += 1
        return out

    def publish(self) -> None:
        """Make this table the next replay's."""
        self._words[step.N_ROWS // 8], self._words[step.N_OUT // 8] = self.n_rows, self.n_out
        self._words[step.ERROR // 8] = 0
