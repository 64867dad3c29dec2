"""The command line in a control group that the kernel enforces: its limit is seen, what is planned under it lives."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.budget import MIB
from tests.appliance.cli.shell import ARGV, environment
from tests.heavy import heavy_llama

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
SPARE = 64 * MIB  # what the interpreter has taken already when it looks
KV, RESERVE, WEIGHTS = 4096 * 16384, 512 * MIB, 105 * MIB


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return heavy_llama(tmp_path_factory.mktemp("heavy") / "heavy.gguf")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own, below the root's."""
    base = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    folder = base / f"colibri-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    try:
        if not (folder / "memory.limit_in_bytes").exists() and not (folder / "memory.max").exists():
            pytest.skip("the groups here do not limit memory")
        yield folder
    finally:
        folder.rmdir()


def limited(group: Path, n_bytes: int, *words: str) -> "subprocess.CompletedProcess[str]":
    """`colibri` started inside the group."""
    limit = next(group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())
    limit.write_text(str(n_bytes // 4096 * 4096))
    enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]
    return subprocess.run(
        [*enter, *ARGV, *words], capture_output=True, text=True, timeout=120, env=environment()
    )  # fmt: skip


def test_a_group_s_limit_decides_and_what_it_allows_is_not_killed(group: Path, model: Path) -> None:
    words = ("run", "-m", str(model), "-c", "4096", "-ub", "16", "-p", "bird", "--raw", "-n", "2", "--json")
    # 90 MiB of worker, 96 that are left free, what is read ahead, and half of the weights
    stream = KV + (90 + 96 + 64) * MIB + WEIGHTS // 2
    for limit, mode in ((WEIGHTS + KV + RESERVE + SPARE, "resident"), (stream, "stream")):
        done = limited(group, limit, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["stats"]["load_mode"] == mode
    refused = limited(group, KV + 180 * MIB, *words)
    assert refused.returncode == 4 and "KV cache, engine and read buffers" in refused.stderr, refused.stderr


def test_the_plan_names_the_group_s_limit(group: Path, model: Path) -> None:
    done = limited(group, 500 * MIB, "plan", str(model), "-c", "4096", "--json")
    made = json.loads(done.stdout)
    assert made["budget_reason"].startswith("min(container limit 500 MiB less ")
    assert 440 * MIB < made["budget_bytes"] < 500 * MIB and (made["verdict"], made["fit"]) == ("PAGES", "streams")
