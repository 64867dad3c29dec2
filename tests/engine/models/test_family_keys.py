"""What the families' own keys mean, and what is refused of them. Not here: common keys (test_shape.py)."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import Value, read_gguf
from engine.gguf.writer import write_gguf
from engine.models.keys import Keys
from engine.models.registry import family
from engine.models.shape import DecoderShape
from tests.blocks import quantise
from tests.families import FAMILIES
from tests.families.family import keys_of


def read(
    tmp_path: Path, name: str, change: dict[str, Value | None], tensors: dict[str, int] | None = None
) -> DecoderShape:
    """The numbers of a row's file with keys changed (None: left out), beside a token embedding and vectors of 1."""
    row = FAMILIES[name]
    keys: dict[str, Value | None] = {**keys_of(row), **{f"{row.arch}.{key}": value for key, value in change.items()}}
    dims = {"token_embd.weight": (64, 272), **{tensor: (n,) for tensor, n in (tensors or {}).items()}}
    path = write_gguf(
        tmp_path / "m.gguf", {key: value for key, value in keys.items() if value is not None},
        [(tensor, size, "F32", quantise(np.ones(size[::-1], np.float32), "F32")) for tensor, size in dims.items()],
    )  # fmt: skip
    return family(row.arch).read(Keys(read_gguf(path), row.arch))


@pytest.mark.parametrize(
    ("name", "change", "windows"),
    [
        ("gemma2", {}, (24, 0, 24, 0)),
        ("gemma2", {"attention.sliding_window": None}, (4096, 0, 4096, 0)),
        ("gemma3", {}, (24, 24, 24, 24, 24, 0, 24)),
        ("gemma3", {"attention.sliding_window_pattern": 2}, (24, 0, 24, 0, 24, 0, 24)),
        ("gemma3", {"attention.sliding_window_pattern": [True, True] + [False] * 4 + [True]}, (24, 24, 0, 0, 0, 0, 24)),
        ("phi3", {}, (24, 24, 24)),
        ("phi3", {"attention.sliding_window": 262144}, (262144,) * 3),
        ("phi3", {"attention.sliding_window": 0}, ()),
        ("phi3", {"attention.sliding_window": None}, ()),
        ("starcoder2", {}, ()),
        ("starcoder2", {"attention.sliding_window": 4096}, (4096,) * 3),
    ],
)
def test_which_layers_have_a_window(
    name: str, change: dict[str, Value | None], windows: tuple[int, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, name, change).windows == windows


@pytest.mark.parametrize(
    ("change", "divisor"),
    [
        ({}, 32),
        ({"block_count": 46}, 64 / 4),
        ({"block_count": 46, "attention.scale": 0.125}, 64),
        ({"attention.scale": 0.0}, 32),
    ],
)
def test_what_scores_of_gemma_are_divided_by(change: dict[str, Value | None], divisor: float, tmp_path: Path) -> None:
    """The largest model is known by its layers alone; a scale in the file wins."""
    shape = read(tmp_path, "gemma2", change)
    assert getattr(shape, "score_scale") == pytest.approx(divisor**-0.5)  # noqa: B009


def test_caps_and_the_local_rope_have_defaults(tmp_path: Path) -> None:
    bare: dict[str, Value | None] = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    second, third = read(tmp_path, "gemma2", bare), read(tmp_path, "gemma3", {})
    numbers = ("score_cap", "logit_cap", "local_base")
    assert [getattr(second, n) for n in numbers] == [50.0, 30.0, 0.0]
    assert [getattr(third, n) for n in numbers] == [0.0, 0.0, 10000.0]
    assert getattr(read(tmp_path, "gemma3", {"rope.freq_base_swa": 5000.0}), "local_base") == 5000.0  # noqa: B009


LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


@pytest.mark.parametrize(
    ("name", "change", "tensors", "words"),
    [
        ("gemma3", {"attention.sliding_window": None}, {}, "lack gemma3.attention.sliding_window"),
        ("gemma3", {"attention.sliding_window": -1}, {}, "sliding_window is -1; 0 to 4294967296"),
        ("gemma3", {"attention.sliding_window_pattern": [True] * 6}, {}, "no list of 7 times true or false"),
        ("gemma3", {"attention.sliding_window_pattern": [7] * 7}, {}, "no list of 7 times true or false"),
        ("gemma3", {"attention.sliding_window_pattern": "six"}, {}, "an integer is expected"),
        ("gemma2", {"attn_logit_softcapping": -2.0}, {}, "attn_logit_softcapping is -2.0"),
        ("phi3-long", {}, {LONG: 12}, f"the file has {LONG} and not the other one"),
        ("phi3-long", {"rope.scaling.type": "yarn"}, {LONG: 12, SHORT: 12}, "'yarn' beside rope_factors_long.weight"),
        ("phi3-long", {"rope.scaling.factor": 4.0}, {LONG: 12, SHORT: 12}, "rope.scaling.factor is 4.0"),
        ("phi3-long", {"rope.scaling.original_context_length": None}, {LONG: 12, SHORT: 12}, "lack phi3.rope.scaling"),
        ("phi3-long", {}, {}, "attn_factor 1.3381 needs"),
        ("starcoder2", {"attention.layer_norm_epsilon": None}, {}, "lack starcoder2.attention.layer_norm_epsilon"),
    ],
)
def test_numbers_that_a_family_does_not_compute_with_are_refused(
    name: str, change: dict[str, Value | None], tensors: dict[str, int], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadModelFile) as error:
        read(tmp_path, name, change, tensors)
    assert words in str(error.value)
