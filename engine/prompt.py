"""Whether ids may be asked of a model: some, which it knows, for what it can make of them. Not here: their number."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidParameter
from engine.info import EngineInfo


def checked(ids: Sequence[int], info: EngineInfo, *, for_vector: bool = False) -> NDArray[np.int64]:
    """The ids, to be continued or `for_vector`; InvalidParameter."""
    if info.is_encoder and not for_vector:
        raise InvalidParameter(
            f"the model is an encoder ({info.architecture}), which makes vectors and no text; send texts to "
            "/v1/embeddings or serve a model that generates",
            param="model",
        )
    if len(ids) == 0:
        raise InvalidParameter("the prompt has no tokens; give at least one", param="prompt")
    prompt = np.asarray(ids, np.int64)
    low, high = int(prompt.min()), int(prompt.max())
    if low < 0 or high >= info.n_vocab:
        raise InvalidParameter(
            f"token id {low if low < 0 else high} is outside the vocabulary of 0 to {info.n_vocab - 1}",
            param="prompt",
        )
    return prompt
