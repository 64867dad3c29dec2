"""Each family's tiny random model: transformers' logits at every position, and llama.cpp's on the same file.

transformers' logits are stored (benchmarks/transformers_families.py); the table of families is tests/families. Not
here: quantised weights (benchmarks/families.py -> docs/models.md), real files, files that say nonsense.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from appliance.machine.host import read_machine
from benchmarks.peer_logits import peer_log_probs
from engine.load import EngineOptions, load_engine
from engine.models.registry import ARCHITECTURES
from tests.families import FAMILIES
from tests.families.encoders import ENCODERS
from tests.families.stored import Truth, ids_of, question, write
from tests.reference import Reference

EVERY_FEW = range(9, 73, 9)
RUNNING = [name for name, family in FAMILIES.items() if family.arch in ARCHITECTURES]


@dataclass(frozen=True)
class Made:
    """A row's file with float32 weights, and what transformers said of it."""

    name: str
    path: Path
    truth: Truth


@pytest.fixture(params=RUNNING, scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("family") / "m.gguf"
    return Made(request.param, path, write(request.param, path))


def options(rows: int, load_mode: str) -> EngineOptions:
    return EngineOptions(n_ctx=256, ubatch_size=rows, type_k="f32", type_v="f32", load_mode=load_mode)


@pytest.mark.parametrize(("rows", "load_mode"), [(128, "resident"), (1, "mmap")], ids=["prefill", "token by token"])
def test_our_logits_are_those_of_transformers(made: Made, rows: int, load_mode: str) -> None:
    engine = load_engine(made.path, options(rows, load_mode), read_machine())
    found = np.array(list(engine.logit_rows(ids_of())))
    engine.shutdown()
    assert made.truth.apart(found) <= 1e-3


@pytest.mark.parametrize("name", ["llama", "qwen3moe", "qwen3moe-one", "qwen3moe-all"])
def test_the_exact_forward_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    """tests/reference.py judges quantised files where no transformers is."""
    truth = write(name, tmp_path / "m.gguf")
    assert truth.apart(Reference(tmp_path / "m.gguf").logits(ids_of())) <= 2e-4


def test_llama_cpp_reads_the_same_model_from_the_files(tmp_path: Path) -> None:
    """Transformers' logits are the third party: names, order of rows and keys are those that others' files have.

    Seen: 1e-4 of the spread, which is how the truth is kept; 2e-3 with llama.cpp's tables of gelu in float16.
    """
    names = [name for name in RUNNING if FAMILIES[name].peer]
    truths = {name: write(name, tmp_path / f"{name}.gguf", for_peer=True) for name in names}
    asked = [question(tmp_path / f"{name}.gguf", ids_of(), "f32", EVERY_FEW) for name in names]
    last = [end - 1 for end in EVERY_FEW]
    told = zip(names, peer_log_probs(asked), strict=True)
    apart = {name: truths[name].apart(found, last, is_shifted=True) for name, found in told}
    assert {name: d for name, d in apart.items() if d > 3e-3} == {}


def test_behind_many_windows_ours_are_llama_cpps_logits(tmp_path: Path) -> None:
    """200 ids are eight windows and several pages of the cache, which are given back meanwhile."""
    names = [name for name in RUNNING if FAMILIES[name].peer and FAMILIES[name].whole_config.get("sliding_window")]
    ids, ends = ids_of(200, seed=8), [90, 129, 170, 200]
    for name in names:
        write(name, tmp_path / f"{name}.gguf", for_peer=True)
    asked = [question(tmp_path / f"{name}.gguf", ids, "f32", ends) for name in names]
    apart = {}
    for name, theirs in zip(names, peer_log_probs(asked), strict=True):
        engine = load_engine(tmp_path / f"{name}.gguf", options(64, "resident"), read_machine())
        found = np.array(list(engine.logit_rows(ids)))[[end - 1 for end in ends]]
        engine.shutdown()
        far = found - theirs
        apart[name] = float(np.abs(far - far.mean(axis=1, keepdims=True)).max() / found.std())
    assert names and {name: d for name, d in apart.items() if d > 3e-3} == {}


def test_every_architecture_has_a_row() -> None:
    rows = [*FAMILIES.values(), *ENCODERS.values()]
    assert set(ARCHITECTURES) - {row.arch for row in rows} == set()
