"""Measured speeds are kept and found again; damage counts as not measured, and nothing is claimed as measured then."""

import json
from pathlib import Path

import pytest

from appliance.machine import rates
from engine.budget import ASSUMED_MEMORY, Machine
from engine.errors import UsageError

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)


def known(data_dir: Path, threads: int = 2) -> Machine:
    return rates.with_rates(MACHINE, data_dir, data_dir, threads)


def test_without_a_measurement_the_speeds_are_assumed_and_say_so(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert found.memory_rate == ASSUMED_MEMORY
    assert found.disk_rate.provenance == "policy" and "--measure measures it" in found.disk_rate.reason


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    rates.keep(tmp_path, memory=(2, 30e9), read=(tmp_path, 1.2e9))
    found = known(tmp_path)
    assert (found.memory_rate.bytes_s, found.disk_rate.bytes_s) == (30e9, 1.2e9)
    assert found.memory_rate.provenance == found.disk_rate.provenance == "measured"
    assert known(tmp_path, threads=4).memory_rate == ASSUMED_MEMORY, "other threads read at another speed"
    assert [path.name for path in tmp_path.iterdir()] == [rates.NAME], "nothing is left behind"


def test_the_newest_measurement_counts(tmp_path: Path) -> None:
    for memory, read in ((20e9, 2e9), (30e9, 1e9), (10e9, 1.5e9)):
        rates.keep(tmp_path, memory=(2, memory), read=(tmp_path, read))
    assert (known(tmp_path).memory_rate.bytes_s, known(tmp_path).disk_rate.bytes_s) == (10e9, 1.5e9)
    rates.keep(tmp_path)
    assert known(tmp_path).disk_rate.bytes_s == 1.5e9


@pytest.mark.parametrize("text", [
    "", "{", "[1]", '{"version": 2, "memory": {"2": 3e10}}', '{"version": 1, "memory": 7}',
    '{"version": 1, "memory": {"2": "fast"}}', '{"version": 1, "memory": {"2": -1}}',
    '{"version": 1, "memory": {"2": 1e300}}', '{"version": 1, "memory": {"2": NaN}}',
])  # fmt: skip
def test_damage_is_not_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / rates.NAME).write_text(text)
    assert known(tmp_path).memory_rate == ASSUMED_MEMORY
    rates.keep(tmp_path, memory=(2, 30e9))
    assert json.loads((tmp_path / rates.NAME).read_text())["memory"] == {"2": 30e9}


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be kept in .*COLIBRI_DATA_DIR"):
        rates.keep(tmp_path / "file" / "below", memory=(2, 1e9))
