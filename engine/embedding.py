"""A text's vector out of a model's last layer: rows normalised, pooled, of length 1. Not here: computing the rows.

    mean   of all rows           cls   the first row           last   the last row

Which one a model was trained with stands in its file; a file that names none is no embedding model, and vectors made
of it would mean nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvCache, KvSequence
from engine.errors import BadModelFile, ContextLengthExceeded, InvalidParameter
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.kernels.program import Buffer
from engine.models.ranking import Head

RANK = "rank"
POOLINGS = {1: "mean", 2: "cls", 3: "last", 4: RANK}
Floats = NDArray[np.float64]


def pooling_of(gguf: GgufFile, architecture: str) -> str:
    """mean, cls, last, or rank, which makes no vectors; empty where the file names none; BadModelFile for another."""
    number = gguf.metadata.get(f"{architecture}.pooling_type", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number not in (0, *POOLINGS):
        raise BadModelFile(
            f"{architecture}.pooling_type is {quoted(str(number))}; 0 (none) to 4 (rank) are known; get the file anew"
        )
    return POOLINGS.get(number, "")


@dataclass(frozen=True)
class Embedder:
    """`x` holds the rows of a step, float32 (rows, k); `weight` (k,) and `eps` are those of the model's last norm.

    An encoder has no `eps`, since its rows are normalised already, and reads a text of up to `whole` ids in one step:
    each of its rows sees all others. Of positions it may know `n_places` only, 0: any. With a `head` it ranks: it
    makes scores of the first row."""

    pooling: str
    x: Buffer
    weight: Floats
    eps: float | None
    whole: int = 0
    n_places: int = 0
    head: Head | None = None

    def vector(
        self, ids: NDArray[np.int64], cache: KvCache, chunk: int, read: Callable[[KvSequence, NDArray[np.int64]], bool]
    ) -> NDArray[np.float32] | None:
        """The vector of a text, float32 (k,), read by `chunk` ids; None when `read`, which computes a step, was left.

        InvalidParameter for a model that makes none, ContextLengthExceeded, KvFull.
        """
        if self.pooling == RANK and self.head is None:
            raise InvalidParameter(
                "the model makes no embeddings: its file asks for ranking (pooling_type rank) without a ranking head; "
                "serve an embedding model for this route",
                param="model",
            )
        if not self.pooling:
            raise InvalidParameter(
                "the model makes no embeddings: its file names no way of pooling (pooling_type mean, cls or last); "
                "serve an embedding model for this route",
                param="model",
            )
        if len(ids) > cache.n_ctx:
            raise ContextLengthExceeded(
                f"the text has {len(ids)} tokens and the context holds {cache.n_ctx}; shorten it or start with a "
                "larger --ctx-size",
                n_prompt_tokens=len(ids), n_ctx=cache.n_ctx,
            )  # fmt: skip
        self._check_whole(len(ids), chunk)
        kv, pool = cache.open(), Pool(self)
        try:
            for i in range(0, len(ids), chunk):
                some = ids[i : i + chunk]
                if not read(kv, some):
                    return None
                kv.advance(len(some))
                pool.take(len(some))
        finally:
            kv.close()
        return pool.result()

    def _check_whole(self, n: int, chunk: int) -> None:
        if 0 < self.n_places < n:
            raise ContextLengthExceeded(
                f"the text has {n} tokens and the model knows {self.n_places} positions; shorten the text",
                n_prompt_tokens=n, n_ctx=self.n_places,
            )  # fmt: skip
        most = min(self.whole, chunk)
        if self.whole > 0 and most < n:
            raise ContextLengthExceeded(
                f"the text has {n} tokens, and this model reads a text in one step, which has {most} rows; shorten the "
                "text or start with a larger --ubatch-size (and --batch-size)",
                n_prompt_tokens=n, n_ctx=most,
            )  # fmt: skip

    def rows(self, n: int) -> Floats:
        """The first n rows of the step, behind the model's last norm."""
        k = len(self.weight)
        x = self.x.view(np.float32, n * k).reshape(n, k).astype(np.float64)
        if self.eps is None:
            return np.asarray(x)
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.eps) * self.weight)


class Pool:
    """What has been read of one text. Rows join in order, so that chunks change no bit."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._n = 0
        self._held = np.zeros(len(embedder.weight))

    def take(self, n: int) -> None:
        """The n rows of a step."""
        kind, rows = self._embedder.pooling, self._embedder.rows(n)
        if kind == "mean":
            for row in rows:
                self._held += row
        elif kind == "last" or not self._n:
            self._held = rows[-1 if kind == "last" else 0].copy()
        self._n += n

    def result(self) -> NDArray[np.float32]:
        """The vector, of length 1, or the scores of a model that ranks; NaN where it computed no numbers."""
        if self._embedder.head is not None:
            return self._embedder.head.scores(self._held)
        length = float(np.sqrt(self._held @ self._held))
        return np.asarray(self._held / length if length else self._held, np.float32)
