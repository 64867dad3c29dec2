"""Settings of sampling: ranges said by name, the window of past tokens, no numba. Not here: which token comes."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from engine.errors import InvalidParameter
from engine.sampling import SamplerSlot, Sampling, Window


@pytest.mark.parametrize(
    ("settings", "param", "words"),
    [
        ({"temperature": -1}, "temperature", "temperature is -1; it must be a number from 0 to 100"),
        ({"temperature": float("nan")}, "temperature", "temperature is nan"),
        ({"temperature": "hot"}, "temperature", "temperature is 'hot'"),
        ({"temperature": True}, "temperature", "temperature is True"),
        ({"top_p": 2}, "top_p", "from 0 to 1"),
        ({"min_p": -0.1}, "min_p", "from 0 to 1"),
        ({"typical_p": 1.5}, "typical_p", "from 0 to 1"),
        ({"top_k": 1.5}, "top_k", "a whole number from -1"),
        ({"top_k": -2}, "top_k", "a whole number from -1"),
        ({"repeat_penalty": 0}, "repeat_penalty", "repeat_penalty is 0"),
        ({"repeat_penalty": -1.0}, "repeat_penalty", "repeat_penalty is -1.0"),
        ({"repeat_last_n": -2}, "repeat_last_n", "from -1"),
        ({"presence_penalty": 2.5}, "presence_penalty", "from -2 to 2"),
        ({"frequency_penalty": -3}, "frequency_penalty", "from -2 to 2"),
        ({"seed": 2**64}, "seed", "seed is"),
        ({"seed": "x"}, "seed", "seed is 'x'"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias", "has the key '5'"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias", "has the key -1"),
        ({"logit_bias": {5: 101}}, "logit_bias", "logit_bias of token 5 is 101; it must be a number from -100 to 100"),
        ({"logit_bias": {5: float("inf")}}, "logit_bias", "is inf"),
        ({"logit_bias": {100: 1.0}}, "logit_bias", "names token 100; this model's ids end at 99"),
    ],
)
def test_a_value_out_of_range_is_named(settings: dict[str, object], param: str, words: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Sampling(**settings).validate(100)  # type: ignore[arg-type]
    assert caught.value.param == param and words in caught.value.message


def test_border_values_are_taken() -> None:
    Sampling().validate()
    Sampling(temperature=0, top_k=0, top_p=0, min_p=1, typical_p=0, repeat_last_n=-1, seed=2**64 - 1).validate()
    Sampling(top_k=-1, top_p=1.0, repeat_penalty=1, logit_bias={0: -100, 99: 100}, seed=-1).validate(100)


def test_a_seed_is_drawn_and_reported_when_none_is_given() -> None:
    assert SamplerSlot(Sampling(seed=7), 10, []).seed == 7
    drawn = {SamplerSlot(Sampling(), 10, []).seed for _ in range(5)}
    assert len(drawn) == 5 and all(0 <= s < 2**53 for s in drawn)


def test_more_log_probabilities_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="n_logprobs is 201"):
        SamplerSlot(Sampling(), 10, [], 201)


@pytest.mark.parametrize("size", [1, 3, 64, -1])
def test_the_window_counts_what_its_last_tokens_hold(size: int) -> None:
    rng = np.random.default_rng(size + 9)
    tokens, window = [int(t) for t in rng.integers(0, 90, 500)], Window(size)
    window.extend(tokens[:200])
    for n in range(200, 500):
        window.push(tokens[n], True)
        start = 0 if size < 0 else max(0, n + 1 - size)
        held = window.entries[: window.n]
        counts = Counter(tokens[start : n + 1])
        assert dict(zip(held["token"].tolist(), held["total"].tolist(), strict=True)) == counts
        made = Counter(tokens[max(start, 200) : n + 1])
        assert dict(zip(held["token"].tolist(), held["generated"].tolist(), strict=True)) == {
            t: made[t] for t in counts
        }


def test_settings_come_without_numba() -> None:
    code = "import sys, engine.sampling; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
