"""The checked build: the same bits as the usual one, and whoever touches what is not his is named, not killed."""

import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from engine.kernels import regions
from scripts.house import ROOT
from tests.tiny import tiny_llama


def run(model: Path, load_mode: str, checked: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.engine.kernels.checked_run", str(model), load_mode]
    env = os.environ | {"COLIBRI_CHECKED": checked}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_a_checked_model_gives_the_same_bits_and_names_the_op_with_a_wrong_extent(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "tiny.gguf", quants={"ffn_down.weight": "Q8_0"})
    usual, checked = run(model, "resident", "0"), run(model, "resident", "1")
    assert usual == {"digest": checked["digest"]} and checked["after"] == checked["digest"]
    assert checked["program"].startswith("the op activate of layer 1 (blk.1.wrong.weight) touched 32 bytes at 0x")
    assert checked["engine"].startswith("the op matmul of layer 1 (blk.1.attn_q.weight) touched")


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry alone: the kernels of this process stay as they are."""
    monkeypatch.setattr(regions, "CHECKED", True)
    monkeypatch.setattr(regions, "_regions", {})
    monkeypatch.setattr(regions, "_arrays", {})


def spans() -> list[tuple[int, int]]:
    """The published regions but for the block itself."""
    regions.publish()
    table = regions._tables[-1]
    found = [(int(start), int(end)) for start, end in table[1:].reshape(-1, 2)]
    assert len(found) == table[0]
    return [span for span in found if span[0] != regions.BLOCK]


class Owner:
    pass


@pytest.mark.usefixtures("switched_on")
def test_regions_that_overlap_are_one_and_neighbours_are_two() -> None:
    owner = Owner()
    for start, n in ((1000, 100), (1050, 10), (1090, 20), (1110, 10), (2000, 0)):
        regions.live(owner, start, n)
    assert spans() == [(1000, 1110), (1110, 1120)]


@pytest.mark.usefixtures("switched_on")
def test_memory_is_live_as_long_as_its_owner() -> None:
    array, owner = np.zeros(8, np.int64), Owner()
    address = regions.address_of(array)
    assert regions.address_of(array) == address == array.ctypes.data
    regions.live(owner, 16, 16)
    assert spans() == [(16, 32), (address, address + 64)]
    gone = weakref.ref(owner)
    del owner, array
    assert gone() is None and spans() == []


def test_without_the_build_nothing_is_kept() -> None:
    assert not regions.CHECKED and regions.take_fault() is None
    regions.address_of(np.zeros(8))
    assert regions._regions == {}


def test_a_switch_that_says_neither_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import engine.kernels.regions"], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "COLIBRI_CHECKED": "yes", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode != 0 and "COLIBRI_CHECKED=yes is neither 0 nor 1" in done.stderr
