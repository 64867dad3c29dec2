"""Runs `colibri` as a shell would, in a process of its own. Not here: commands run in the test's process."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from scripts.house import ROOT

ARGV = [sys.executable, "-m", "appliance.cli.main"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """The test's environment with the repository importable from any working directory."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def colibri(*words: str, stdin: str | bytes = b"", timeout: float = 120, **env: str) -> Done:
    """Run to the end; no command may print a traceback."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    found = subprocess.run([*ARGV, *words], input=data, capture_output=True, timeout=timeout, env=environment(**env))
    done = Done(found.returncode, found.stdout.decode(), found.stderr.decode())
    assert "Traceback" not in done.err or env.get("COLIBRI_DEBUG"), done.err
    return done


def started(*words: str, **more: Any) -> "subprocess.Popen[bytes]":
    """Start and leave running, with pipes for all three streams unless told otherwise."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*ARGV, *words], env=environment(), **{**pipes, **more})
