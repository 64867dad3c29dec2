"""Heat files: the right one is read, everything else is one sentence."""

import json
import os
from pathlib import Path

import pytest

from engine.errors import UsageError
from engine.weights.heat import kept_heat, read_heat, write_heat

GOOD = {"model_digest": "d", "layers": [[1, 2.5, 0], [0, 0, 7]]}


def test_a_recorded_heat_is_read(tmp_path: Path) -> None:
    (tmp_path / "heat.json").write_text(json.dumps({**GOOD, "more": "words"}))
    assert read_heat(tmp_path / "heat.json", 2, 3, "d") == [[1.0, 2.5, 0.0], [0.0, 0.0, 7.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'has no list "layers"'),
        ('{"model_digest": "d", "layers": 3}', 'has no list "layers"'),
        (json.dumps({**GOOD, "model_digest": "e"}), "recorded with another model file"),
        (json.dumps({"layers": GOOD["layers"]}), "recorded with another model file"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3]]}), "not of 2 layers with 3 experts"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3], [1, 2]]}), "not of 2 layers with 3 experts"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3], "abc"]}), "not of 2 layers with 3 experts"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3], [1, 2, -1]]}), "no number of 0 or more"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3], [1, 2, True]]}), "no number of 0 or more"),
        (json.dumps({**GOOD, "layers": [[1, 2, 3], [1, 2, None]]}), "no number of 0 or more"),
        ('{"model_digest": "d", "layers": [[1, 2, 3], [1, 2, NaN]]}', "no number of 0 or more"),
        ('{"model_digest": "d", "layers": [[1, 2, 3], [1, 2, 1e999]]}', "no number of 0 or more"),
        ('{"model_digest": "d", "layers": [[1, 2, 3], [1, 2, 1' + "0" * 400 + "]]}", "no number of 0 or more"),
    ],
)
def test_every_other_file_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "heat.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_heat(tmp_path / "heat.json", 2, 3, "d")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        read_heat(tmp_path / "heat.json", 2, 3, "d")


def test_what_is_kept_is_worth_half_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "heat.json"
    assert kept_heat(path, 2, 3, "d") is None
    assert write_heat(path, [[1.0, 2.5, 0.0], [0.0, 0.0, 7.0]], "d")
    assert kept_heat(path, 2, 3, "d") == [[0.5, 1.25, 0.0], [0.0, 0.0, 3.5]]
    assert read_heat(path, 2, 3, "d")[0] == [1.0, 2.5, 0.0], "relayout reads the same file"
    assert kept_heat(path, 2, 3, "of another model") is None and os.listdir(path.parent) == ["heat.json"]


def test_heat_that_cannot_be_kept_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    assert not write_heat(tmp_path / "file" / "heat.json", [[1.0]], "d")
