"""Times of a swap's stages: taught by the last swap, else a formula that says what it assumes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.settings import Settings, resolve
from appliance.swaps import estimates
from appliance.swaps.estimates import Candidate, gap_s, nothing_to_do, restart_s, stages
from engine.budget import Machine
from engine.footprint import ModelFacts
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from engine.planner import PlanRequest, assess
from tests.tiny import tiny_llama

GIB = 1 << 30
MACHINE = Machine(64 * GIB, None, 2, (0, 1), None)


def settings_of(**values: Any) -> Settings:
    return resolve({}, {}, values).settings


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    gguf = read_gguf(tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf"))
    return ModelFacts.of(gguf, DecoderShape.read(gguf))


def candidate(
    facts: ModelFacts, cached: float | None = 0.0, n_bytes: int = 10 * GIB, mode: str = "resident",
    machine: Machine = MACHINE,
) -> Candidate:  # fmt: skip
    """A large model's times from a small model's header: sizes are what counts here."""
    large = replace(facts, weights=dict.fromkeys(facts.weights, 0) | {"ffn": n_bytes}, file_bytes=n_bytes)
    plan = assess(large, machine, PlanRequest(load_mode=mode))
    return Candidate(plan, Path("absent"), n_bytes, cached, settings_of())


def swap(id_: str, *, cached: float | None = None, weights: int = 10 * GIB, **took: float) -> dict[str, Any]:
    rows = [{"name": name, "took_s": seconds} for name, seconds in took.items()]
    return {"id": id_, "state": "ready", "stages": rows, "cached": cached, "weights_bytes": weights}


def by_name(found: list[estimates.Estimate]) -> dict[str, estimates.Estimate]:
    assert [row.name for row in found] == ["drain", "stop", "start", "warm", "check"]
    return {row.name: row for row in found}


def test_without_a_past_the_formula_speaks_and_says_what_it_assumes(facts: ModelFacts) -> None:
    rows = by_name(stages(candidate(facts), None, {}, []))
    read_s, copy_s, passes_s = 10 * GIB / 500e6, 10 * GIB / estimates.COPY_RATE, 2 * 10 * GIB / 8e9
    assert rows["warm"].estimate_s == pytest.approx(read_s + copy_s + passes_s, abs=0.3)
    assert "0% is in the page cache; 10.00 GiB to read at 500 MB/s (assumed" in rows["warm"].note
    assert rows["drain"].estimate_s == 0.0 and "nothing is running" in rows["drain"].note
    assert "compiled already" in rows["start"].note


def test_what_is_cached_is_not_read_and_a_mapped_file_is_not_copied(facts: ModelFacts) -> None:
    cold, warm, mapped = (
        by_name(stages(one, None, {}, []))["warm"].estimate_s
        for one in (candidate(facts, 0.0), candidate(facts, 1.0), candidate(facts, 1.0, mode="mmap"))
    )
    assert cold - warm == pytest.approx(10 * GIB / 500e6, abs=0.2)
    assert warm - mapped == pytest.approx(10 * GIB / estimates.COPY_RATE, abs=0.2)
    assert "nothing to read" in by_name(stages(candidate(facts, 1.0), None, {}, []))["warm"].note
    unknown = by_name(stages(candidate(facts, None), None, {}, []))["warm"]
    assert unknown.estimate_s == cold and "does not tell" in unknown.note


def test_a_stream_reads_what_stays_and_then_the_rest_for_each_pass(facts: ModelFacts) -> None:
    half = replace(MACHINE, memory_available=6 * GIB)
    one = candidate(facts, 1.0, machine=half, mode="stream")
    row = by_name(stages(one, None, {}, []))["warm"]
    pinned, rest = one.plan.pinned_bytes, one.plan.stream_bytes_per_token
    assert pinned + rest == 10 * GIB and one.missing_bytes == pinned
    assert row.estimate_s == pytest.approx((pinned + 2 * rest) / 500e6 + 2 * 10 * GIB / 8e9, abs=0.3)
    assert "past the page cache" in row.note


def test_the_last_swap_is_the_teacher(facts: ModelFacts) -> None:
    past = [swap("0003", cached=0.0, stop=9, start=9, warm=99, check=9),
            swap("0007", cached=0.05, stop=0.4, start=1.25, warm=12, check=0.6)]  # fmt: skip
    rows = by_name(stages(candidate(facts, 0.0), settings_of(), {"running": 0}, past))
    assert [rows[name].estimate_s for name in ("stop", "start", "warm", "check")] == [0.4, 1.2, 12.0, 0.6]
    assert all("swap 0007" in rows[name].note for name in ("stop", "start", "warm", "check"))
    assert gap_s(list(rows.values())) == pytest.approx(14.2)


def test_another_share_in_the_cache_takes_the_disk_s_measured_rate(facts: ModelFacts) -> None:
    past = [swap("0007", cached=0.0, warm=10.0), swap("0008", cached=1.0, warm=0.5), swap("0009", warm=3.0)]
    rows = by_name(stages(candidate(facts, 0.5, mode="mmap"), None, {}, past))
    assert rows["warm"].estimate_s == pytest.approx(5.0 + 2 * 10 * GIB / 8e9, abs=0.3)
    assert "measured in swap 0007" in rows["warm"].note
    changed = by_name(stages(candidate(facts, 0.0, n_bytes=20 * GIB, mode="mmap"), None, {}, past[:1]))
    assert "measured in swap 0007" in changed["warm"].note and "as in swap" not in changed["warm"].note


def test_the_drain_waits_for_who_is_running(facts: ModelFacts) -> None:
    one = candidate(facts)
    old = settings_of(drain_timeout=20.0)
    busy = {"running": 2, "waiting": 3, "eta_s": 31.04}
    known = by_name(stages(one, old, busy, []))["drain"]
    assert (known.estimate_s, known.limit_s) == (31.0, 20.0)
    assert "2 running" in known.note and "3 waiting ones are held, not lost" in known.note
    cut = by_name(stages(one, settings_of(drain_timeout=20.0, drain_policy="cancel"), busy, []))["drain"]
    assert cut.estimate_s == 20.0 and "ended at the limit" in cut.note
    unknown = by_name(stages(one, old, {"running": 1}, []))["drain"]
    assert unknown.estimate_s == 20.0 and "not known" in unknown.note


def test_limits_are_the_old_profile_s_until_it_has_left(facts: ModelFacts) -> None:
    one = replace(candidate(facts), settings=settings_of(start_timeout=7.0, stop_timeout=8.0))
    rows = by_name(stages(one, settings_of(stop_timeout=3.0, start_timeout=4.0), {}, []))
    assert (rows["stop"].limit_s, rows["start"].limit_s) == (3.0, 7.0)


def test_damaged_history_teaches_nothing(facts: ModelFacts) -> None:
    past = [{}, {"stages": None}, {"stages": [{"name": "warm", "took_s": None}]}, {"stages": [{}], "cached": "half"}]
    assert stages(candidate(facts), None, {}, past) == stages(candidate(facts), None, {}, [])


def test_the_way_back_is_quick_while_its_file_is_cached(facts: ModelFacts) -> None:
    assert restart_s(candidate(facts, 1.0, mode="mmap")) + 20 < restart_s(candidate(facts, 0.0, mode="mmap"))


def test_nothing_to_do_takes_no_time() -> None:
    assert gap_s(nothing_to_do(settings_of())) == 0.0
    assert {row.note for row in nothing_to_do(settings_of())} == {"not needed"}
