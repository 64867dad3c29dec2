"""Where the worker lives: machines with one and more nodes laid into folders, and the real numactl. Not here: speed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.machine.numa import Node, bound_to, nodes, prefix

GIB_KB = 1 << 20
NUMACTL = "/usr/bin/numactl"


def lay(root: Path, *free_gib: float, cpus: tuple[str, ...] = ("0-3", "4-7", "8-11"), status: str = "") -> Path:
    """A machine with a node of 32 GiB per number, that much of it free."""
    for n, (gib, own) in enumerate(zip(free_gib, cpus, strict=False)):
        folder = root / f"sys/devices/system/node/node{n}"
        folder.mkdir(parents=True)
        rows = {"MemTotal": 32 * GIB_KB, "MemFree": int(gib * GIB_KB), "FilePages": 0, "Shmem": 0}
        put(root, n, **rows)
        (folder / "cpulist").write_text(own + "\n")
    (root / "sys/devices/system/node/has_cpu").write_text("0-1\n")
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text(status)
    return root


def put(root: Path, node: int, **rows: int) -> None:
    path = root / f"sys/devices/system/node/node{node}/meminfo"
    old = path.read_text() if path.exists() else ""
    path.write_text(old + "".join(f"Node {node} {name}:  {kb} kB\n" for name, kb in rows.items()))


def there(name: str) -> str | None:
    """A `which` that finds the program: one that always succeeds, so that only the choice is judged."""
    return shutil.which("true") if name == "numactl" else None


def test_two_policies_place_nothing(tmp_path: Path) -> None:
    two = lay(tmp_path, 1, 2)
    assert prefix("off", two, there).argv == prefix("numactl", two, there).argv == ()
    assert "started" in prefix("numactl", two, there).reason


@pytest.mark.parametrize("policy", ["distribute", "isolate"])
def test_one_node_needs_nothing(tmp_path: Path, policy: str) -> None:
    assert prefix(policy, lay(tmp_path, 8), there) == ((), prefix(policy, tmp_path, there).reason)
    assert "one memory node" in prefix(policy, tmp_path, there).reason
    assert prefix(policy, tmp_path / "nothing", there).argv == ()


def test_distribute_takes_all_nodes_in_turns(tmp_path: Path) -> None:
    argv, reason = prefix("distribute", lay(tmp_path, 1, 2, 3), there)
    assert argv[1:] == ("--interleave=all",) and "3 nodes" in reason


def test_isolate_takes_the_node_with_most_room(tmp_path: Path) -> None:
    argv, reason = prefix("isolate", lay(tmp_path, 3, 20, 7), there)
    assert argv[1:] == ("--cpunodebind=1", "--membind=1") and "20.0 GiB" in reason and "4 CPUs" in reason
    node = bound_to(argv, tmp_path)
    assert node is not None and node.cpus == (4, 5, 6, 7)
    assert bound_to(("numactl", "--interleave=all"), tmp_path) is bound_to((), tmp_path) is None


def test_page_cache_is_room_but_shared_memory_is_not(tmp_path: Path) -> None:
    root = lay(tmp_path, 4, 2, 2)
    put(root, 1, FilePages=9 * GIB_KB, Shmem=8 * GIB_KB)
    put(root, 2, FilePages=3 * GIB_KB, Shmem=0)
    assert [node.room >> 30 for node in nodes(root)] == [4, 3, 5]


def test_the_leaving_worker_s_pages_are_room(tmp_path: Path) -> None:
    """Without it two nodes would be taken in turns at each swap, away from the cached file."""
    root = lay(tmp_path, 3, 20)
    (root / "proc/77").mkdir()
    n_pages = 20 * GIB_KB // 4
    (root / "proc/77/numa_maps").write_text(
        f"7f00 bind:0 anon={n_pages} dirty={n_pages} N0={n_pages} kernelpagesize_kB=4\n"
        "7f10 bind:0 file=/models/a.gguf mapped=900 N1=900 kernelpagesize_kB=4\n"
        "7f20 default huge anon=512 N0=512 kernelpagesize_kB=2048\n"
    )
    assert prefix("isolate", root, there).argv[1] == "--cpunodebind=1"
    assert prefix("isolate", root, there, leaving=77).argv[1] == "--cpunodebind=0"
    assert [node.room >> 30 for node in nodes(root, 77)] == [24, 20]
    assert nodes(root, 78) == nodes(root)


def test_only_what_cpuset_and_affinity_leave_us_counts(tmp_path: Path) -> None:
    root = lay(tmp_path, 9, 8, 7, status="Cpus_allowed_list:\t0-5\nMems_allowed_list:\t1-2\n")
    assert nodes(root) == [Node(1, (4, 5), 8 << 30), Node(2, (), 7 << 30)]
    assert prefix("isolate", root, there).argv[1] == "--cpunodebind=1"
    (root / "proc/self/status").write_text("Cpus_allowed_list:\t0-3\nMems_allowed_list:\t1-2\n")
    assert "no memory node has a CPU" in prefix("isolate", root, there).reason


def test_a_node_without_memory_is_none(tmp_path: Path) -> None:
    root = lay(tmp_path, 3, 4)
    (root / "sys/devices/system/node/node1/meminfo").write_text("Node 1 MemTotal:  0 kB\n")
    assert prefix("distribute", root, there).argv == ()


def test_a_machine_without_the_program_says_so(tmp_path: Path) -> None:
    argv, reason = prefix("distribute", lay(tmp_path, 1, 2), lambda name: None)
    assert argv == () and "not installed" in reason


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'set_mempolicy: Operation not permitted' >&2; echo usage >&2; exit 1", "Operation not permitted"),
        ("exit 3", "exit code 3"),
        (None, "does not run"),
    ],
)
def test_a_refusal_is_told_and_costs_no_service(tmp_path: Path, script: str | None, words: str) -> None:
    program = tmp_path / "numactl"
    program.write_text("" if script is None else f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script is not None else 0o644)
    argv, reason = prefix("distribute", lay(tmp_path / "root", 1, 2), lambda name: str(program))
    assert argv == () and words in reason and "starts without" in reason and "usage" not in reason


def is_allowed(*words: str) -> bool:
    """Whether this machine's kernel lets numactl do that; a container without SYS_NICE does not."""
    return subprocess.run([NUMACTL, *words, "true"], capture_output=True).returncode == 0


def test_the_real_numactl_becomes_the_worker_under_its_own_process_id(tmp_path: Path) -> None:
    """Two nodes are claimed to the code, numactl and the kernel are this machine's."""
    argv, reason = prefix("distribute", lay(tmp_path, 1, 2))
    if not is_allowed("--interleave=all"):
        assert argv == () and "does not allow it here" in reason
        return
    assert argv == (NUMACTL, "--interleave=all")
    show = "import os; print(os.getpid()); print(open('/proc/self/numa_maps').readline().split()[1])"
    with subprocess.Popen([*argv, sys.executable, "-c", show], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid, policy = child.stdout.read().split()
    assert int(pid) == child.pid and policy.startswith("interleave:0")


def test_the_real_kernel_refuses_a_node_that_is_not_there(tmp_path: Path) -> None:
    """Seven claimed nodes; the roomiest does not exist in the machine that runs the test."""
    n = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    root = lay(tmp_path, *range(1, n + 2), cpus=("0",) * (n + 1))
    argv, reason = prefix("isolate", root)
    assert argv == () and "does not allow it here" in reason
    words = ("--cpunodebind=0", "--membind=0")
    real = prefix("isolate", lay(tmp_path / "b", 9, 1, cpus=(",".join(map(str, os.sched_getaffinity(0))), "")))
    assert real.argv == ((NUMACTL, *words) if is_allowed(*words) else ())


def test_this_very_machine_gets_a_sentence() -> None:
    argv, reason = prefix("distribute")
    assert reason and (argv == () or argv[1:] == ("--interleave=all",))
