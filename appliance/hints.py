"""What may have spoiled an answer, in sentences for whoever asked. Not here: how it is seen (engine/loops.py).

An answer that ends by itself gets no hint, whatever its settings.
"""

from collections.abc import Mapping
from typing import Any

from appliance.request import Done
from engine.sampling import Sampling

COLD = 0.2
"""Below this temperature the likeliest token nearly always wins, and a phrase that makes itself likely stays."""
LONG = 256
"""An answer that ran into its limit after fewer tokens was simply cut."""
FEW_BITS = 3.5
"""Per weight of the file: below, models that were not trained for it often neither stop nor make sense."""


def hints(sampling: Sampling, done: Done, info: Mapping[str, Any]) -> list[str]:
    """Sentences about an answer that ended by `done`, made with `sampling` by the engine that `info` describes."""
    is_long = done.finish_reason == "length" and done.n_generated >= LONG
    if done.loop is None and not is_long:
        return []
    found = []
    what = "the answer only repeated itself and was ended" if done.loop else "the answer ran into its limit"
    is_free = not sampling.grammar
    if is_free and sampling.temperature < COLD and not _penalises(sampling):
        found.append(
            f"{what}; a temperature of {sampling.temperature:g} without repeat_penalty loops easily, set "
            "repeat_penalty to 1.1 or temperature to 0.6"
        )
    elif is_free and done.loop:
        found.append(f"{what}; a higher repeat_penalty or temperature, or a clearer question may help")
    bits = bits_per_weight(info)
    if bits is not None and bits < FEW_BITS:
        found.append(f"{what}; this file has {bits:.1f} bits per weight, one of 4 or more is less likely to do so")
    return found


def bits_per_weight(info: Mapping[str, Any]) -> float | None:
    """Of a whole file; None while no engine has told."""
    n_params, n_bytes = info.get("n_params"), info.get("file_bytes")
    return 8 * n_bytes / n_params if n_params and n_bytes else None


def _penalises(sampling: Sampling) -> bool:
    set_ = sampling.repeat_penalty > 1 or sampling.presence_penalty > 0 or sampling.frequency_penalty > 0
    return set_ and sampling.repeat_last_n != 0
