"""Runs `colibri` in a process of its own, as a shell would, or inside the test's, which is quicker. Not here: tests."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from appliance.cli.main import main
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


def inside(*words: str, stdin: str | bytes = b"") -> Done:
    """The same in this process: numba is loaded once, not once per command."""
    out, err = io.StringIO(), io.StringIO()
    piped = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr("sys.stdin", piped)
        code = main(words)
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())


def started(*words: str, **more: Any) -> "subprocess.Popen[bytes]":
    """Start and leave running, with pipes for all three streams unless told otherwise."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*ARGV, *words], env=environment(), **{**pipes, **more})
