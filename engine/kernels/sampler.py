"""What a sequence's sampler looks like in memory: settings in, token out. Not here: code (sample.py), the owner of the
memory (engine/sampling.py). Imports no numba.

One RECORD per sequence, its address in the step block's SAMPLERS. The kernel changes logits in place and restores them,
hence `saved`; those that a mask forbids stay changed.
"""

import numpy as np

GREEDY_BELOW = 1e-5  # a temperature under it takes the greatest logit
MOST_TOP = 200  # log-probabilities listed per token
NOT_FINITE = 1  # in the step's ERROR word: logits hold a NaN or an infinity

RECORD = np.dtype(
    [
        ("seed", "u8"),
        ("top_k", "i8"),  # 0 or less, or the whole vocabulary: off
        ("temperature", "f8"),
        ("top_p", "f8"),  # 1: off
        ("min_p", "f8"),  # 0: off
        ("typical_p", "f8"),  # 1: off
        ("repeat_penalty", "f8"),
        ("presence_penalty", "f8"),
        ("frequency_penalty", "f8"),
        ("n_penalties", "i8"),
        ("penalties", "i8"),  # address of PENALTY[n_penalties]: distinct tokens of the window
        ("n_biases", "i8"),
        ("biases", "i8"),  # address of BIAS[n_biases]: distinct tokens
        ("n_top", "i8"),  # -1: no log-probabilities; 0: the token's own; up to MOST_TOP
        ("top", "i8"),  # address of TOP[n_top], filled with the likeliest first
        ("token", "i8"),  # out; -1 when logits are not finite
        ("logprob", "f8"),  # out, of the logits as the model gave them; 0 when n_top is -1
        ("mask", "i8"),  # address of a bit for each token, u4[n_vocab / 32 rounded up]: 1 may be chosen; 0: all may
    ]
)
PENALTY = np.dtype([("token", "i4"), ("generated", "i4"), ("total", "i4"), ("saved", "f4")])
BIAS = np.dtype([("token", "i4"), ("bias", "f4"), ("saved", "f4"), ("unused", "i4")])
TOP = np.dtype([("token", "i4"), ("logprob", "f4")])

OFFSET = {name: RECORD.fields[name][1] for name in RECORD.names} if RECORD.fields and RECORD.names else {}
