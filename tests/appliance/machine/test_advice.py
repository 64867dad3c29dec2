"""Warnings: each appears for its reason and not without, and says what to do."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.machine.advice import Engine, warnings
from appliance.machine.cores import Node
from appliance.machine.gauges import Reading
from appliance.machine.pressure import Pressure

GIB = 1 << 30
WELL = Reading(
    machine={"total": 64 * GIB, "available": 30 * GIB, "free": 9 * GIB, "cached": 9 * GIB, "limit": None,
             "limit_used": None, "swap_total": 8 * GIB, "swap_used": GIB},
    major_faults_s=0.0, disk_read_s=0.0, cores=32, load1=16.0,
    nodes=[Node(0, 16, 0.8, 2900, "performance"), Node(1, 16, 0.4, 2900, "performance")],
    temp_c=71.0, throttled=False, quota=None, thp="madvise", swappiness=10, data_free=50 * GIB, data_total=99 * GIB,
)  # fmt: skip
UNKNOWN = Reading(
    machine=dict.fromkeys(WELL.machine), major_faults_s=None, disk_read_s=None, cores=1, load1=None,
    nodes=[Node(0, 1, None, None, None)], temp_c=None, throttled=None, quota=None, thp="unknown", swappiness=None,
    data_free=5 * GIB, data_total=9 * GIB,
)  # fmt: skip
IDLE_NODE = [WELL.nodes[0], replace(WELL.nodes[1], util=0.04)]


def test_a_machine_that_is_well_or_tells_nothing_has_no_warnings() -> None:
    assert warnings(WELL, Engine(n_waiting=3)) == []
    assert warnings(UNKNOWN, Engine(n_waiting=3)) == []


@pytest.mark.parametrize(
    ("change", "engine", "seen", "advice"),
    [
        ({}, {"worker_swap": GIB}, "1,024 MiB of the engine are in swap", "smaller ctx_size"),
        ({"major_faults_s": 900.4}, {}, "reads 900 pages a second", "smaller model"),
        ({"machine": {**WELL.machine, "available": GIB}}, {}, "only 1,024 MiB of memory", "end other programs"),
        ({"machine": {**WELL.machine, "limit": 48 * GIB, "limit_used": 47 * GIB}}, {},
         "uses 47.0 GiB of its 48.0 GiB", "raise the limit"),
        ({"data_free": 100 << 20}, {}, "100 MiB left", "make room"),
        ({"data_free": None, "data_total": None}, {}, "cannot be reached", "mount it"),
        ({"throttled": True}, {}, "slowed down for heat within the last minute at 71 C", "cooling"),
        ({"temp_c": 95.0}, {}, "95 C", "cooling"),
        ({"nodes": [replace(WELL.nodes[0], governor="powersave")]}, {}, "powersave", "colibri host apply --yes"),
        ({"nodes": IDLE_NODE}, {"n_waiting": 3}, "node 1 is idle while requests wait (3)", "numa: distribute"),
        ({"thp": "never"}, {}, "huge pages are off", "colibri host apply --yes"),
        ({"pressure": Pressure(memory_some=40.0, memory_full=12.4)}, {}, "for 12% of the last seconds", "free some"),
        ({"pressure": Pressure(oom_kill=2)}, {}, "ended 2 of this container's processes", "raise the limit"),
        ({"machine": {**WELL.machine, "swap_total": 0}}, {"is_streaming": True}, "no swap", "add some swap"),
        ({}, {"is_streaming": True, "disk_share": 0.81}, "wait for the disk for 81% of their time", "more memory"),
        ({}, {"notes": ("mlock was refused; raise ulimit -l",)}, "mlock was refused", "ulimit"),
    ],
)  # fmt: skip
def test_each_warning_has_its_reason_and_its_advice(
    change: dict[str, Any], engine: dict[str, Any], seen: str, advice: str
) -> None:
    (text,) = warnings(replace(WELL, **change), Engine(**engine))
    assert seen in text
    assert advice in text


def test_waiting_for_the_disk_is_no_news_below_half_the_time_or_without_a_stream() -> None:
    assert warnings(WELL, Engine(is_streaming=True, disk_share=0.5)) == []
    assert warnings(WELL, Engine(disk_share=0.9)) == []


def test_an_idle_node_is_no_news_while_nobody_waits_or_all_are_idle() -> None:
    assert warnings(replace(WELL, nodes=IDLE_NODE), Engine(n_waiting=0)) == []
    quiet = [replace(node, util=0.01) for node in WELL.nodes]
    assert warnings(replace(WELL, nodes=quiet), Engine(n_waiting=2)) == []
