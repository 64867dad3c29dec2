"""Lines to tick off before a swap that hang on this process's own limits. Not here: the others (test_planning.py)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house import ROOT
from tests.tiny import tiny_llama

# The limit and the right to pass it are a process's own, so each case gets one. 194 KB are to be locked.
CODE = """
import ctypes, json, resource, sys
from appliance.swaps.planning import look
from appliance.swaps.plan_checks import checks_of
from appliance.settings import resolve
from engine.budget import Machine
machine = Machine(8 << 30, None, 2, (0, 1), None)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (int(sys.argv[2]), int(sys.argv[2])))
head, no_rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(head, no_rights) == 0
settings = resolve({"model": sys.argv[1], "load_mode": "mlock"}, {}).settings
seen = look(settings, machine)
rows = checks_of(settings, seen.path, seen.facts, seen.plan, seen.error, machine, {})
print(json.dumps([row.json() for row in rows if "locked" in row.text]))
"""


@pytest.mark.parametrize(("limit", "result"), [(1 << 20, "ok"), (65536, "warn")])
def test_locked_weights_need_the_limit_for_it(limit: int, result: str, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    done = subprocess.run([sys.executable, "-c", CODE, str(path), str(limit)], cwd=ROOT, capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["result"] == result
    assert ("raise the memlock limit" in row["detail"]) == (result == "warn")
