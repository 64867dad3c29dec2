"""A quota of one CPU with more in sight, held by this machine's kernel. Skipped only where it refuses the group."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.machine.confine import quietest
from benchmarks.cpu_group import CpuGroup
from scripts.house import ROOT
from tests.tiny import tiny_llama

MASK = os.sched_getaffinity(0)  # before any test pins the process
pytestmark = pytest.mark.skipif(len(MASK) < 2, reason="a quota below one CPU is another story")
SPIN = """
import json, subprocess, sys, time
from appliance.machine.confine import confine
from appliance.machine.host import default_threads, read_machine
from benchmarks.cpu_group import CpuGroup
with CpuGroup("colibri-test", 1.0) as group:
    group.enter()
    machine = read_machine()
    said = confine(machine)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    time.sleep(0.3)
    before = group.periods()
    time.sleep(1.5)
    after = group.periods()
    for process in spinning:
        process.kill()
        process.wait()
    print(json.dumps([machine.cpu_quota, default_threads(machine), said, after[0] - before[0], after[1] - before[1]]))
"""


@pytest.fixture
def may_hold_quotas() -> Iterator[None]:
    try:
        with CpuGroup("colibri-probe", 1.0):
            pass
    except OSError as error:
        pytest.skip(f"no control group of one's own: {error}")
    yield


def run(*command: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, MASK),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.usefixtures("may_hold_quotas")
def test_processes_on_one_cpu_do_not_run_out_of_a_quota_of_one() -> None:
    quota, threads, said, periods, throttled = json.loads(run("-c", SPIN))
    assert (quota, threads) == (1.0, 1) and said.startswith("the CPU quota is 1: all processes stay on CPU")
    assert periods >= 5 and throttled <= 1, "on two CPUs they are stopped in every period"


@pytest.mark.usefixtures("may_hold_quotas")
def test_the_engine_takes_one_thread_and_is_not_throttled(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "tiny.gguf", n_ctx=2048)
    words = ("-m", str(model), "--rounds", "3", "--seconds", "0.6", "--patience", "0", "--json")
    row = json.loads(run("-m", "benchmarks.pressure", "quota", *words))
    assert row["threads"] == 1 and row["periods"] >= 10
    assert row["throttled"] <= 0.1, row


def test_of_equal_cpus_two_services_take_different_ones() -> None:
    idle = dict.fromkeys(range(4), (0, 0))
    now = {0: (9, 10), 1: (1, 10), 2: (1, 10), 3: (5, 10)}
    assert quietest((0, 1, 2, 3), 1, idle, now, 1) == (1,) and quietest((0, 1, 2, 3), 1, idle, now, 2) == (2,)
    assert quietest((0, 1, 2, 3), 3, idle, now, 0) == (1, 2, 3)
    assert quietest((4, 7), 1, {}, {}, 5) == (7,), "a machine that tells nothing"
