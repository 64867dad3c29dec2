"""Host tuning as the one-shot service: dry, for real and taken back, and on a host that refuses. Not here: the rules.

Needs Docker and the image (`./up --build`); runs only with `pytest -m box`.
"""

import json
import subprocess
from pathlib import Path

import pytest

from scripts.house import ROOT
from tests.box.conftest import Box

pytestmark = pytest.mark.box
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_host_tune_shows_the_host_and_is_dry(box: Box) -> None:
    run = ("--profile", "host-tune", "run", "--rm", "host-tune")
    assert "settings" in json.loads(box.compose(*run, "show", "--json"))
    assert json.loads(box.compose(*run, "apply", "--json"))["dry_run"] is True
    assert json.loads(box.compose(*run, "status", "--json"))["changes"] == []


def test_a_host_that_refuses_tuning_says_so_and_the_service_goes_on(box: Box, tmp_path: Path) -> None:
    """The kernel's files mounted read-only stand for a host that does not let us."""
    closed = tmp_path / "closed.yaml"
    closed.write_text('services: {host-tune: {volumes: ["/sys/kernel/mm:/sys/kernel/mm:ro"]}}\n')
    run = ["-f", "compose.yaml", "-f", str(closed), "--profile", "host-tune", "run", "--rm", "-T", "host-tune"]
    argv = ["docker", "compose", *run, "apply", "--yes", "--only", "thp", "--thp", other_thp(box)]
    done = subprocess.run(argv, cwd=ROOT, env=box.env, capture_output=True, text=True)
    assert done.returncode == 1 and "may not be written" in done.stderr and "Traceback" not in done.stderr
    assert box.get("/readyz")[0] == 200


def other_thp(box: Box) -> str:
    """A value that this host does not have now."""
    now = json.loads(box.compose("--profile", "host-tune", "run", "--rm", "-T", "host-tune", "show", "--json"))
    value = next(row["value"] for row in now["settings"] if row["name"] == "thp")
    return "always" if value != "always" else "madvise"


def test_tuning_is_applied_and_taken_back_through_compose(box: Box) -> None:
    """On this very host, where it lets us; its file is byte for byte the same afterwards."""
    before = ENABLED.read_bytes()
    run = ("--profile", "host-tune", "run", "--rm", "-T", "host-tune")
    box.compose(*run, "apply", "--yes", "--only", "thp", "--thp", other_thp(box))
    try:
        assert ENABLED.read_bytes() != before
        assert json.loads(box.compose(*run, "status", "--json"))["changes"][0]["outcome"] == "done"
    finally:
        box.compose(*run, "revert", "--yes")
    assert ENABLED.read_bytes() == before
