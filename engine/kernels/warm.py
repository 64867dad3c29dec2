"""Compiles kernels that are missing from the cache, in child processes, with progress. Not here: what is missing.

    python -m engine.kernels.warm PARENT MODULE:FUNCTION ...     prints a line for each: its name, its code in base64

The children die with their parent, process id PARENT, however it ends: an interrupted command leaves through os._exit,
and a compiler that nobody waits for keeps a CPU busy for a minute. Code comes back through the pipe: a cache that takes
no files does not make the parent compile again.
"""

import base64
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from engine.errors import EngineFailed
from engine.kernels.jit import Kernel
from engine.kernels.objects import Code

PR_SET_PDEATHSIG = 1


def compile_missing(kernels: Sequence[Kernel], on_progress: Callable[[int, int, str], None]) -> None:
    """Compile `kernels` with one child per CPU, at most two; raises EngineFailed with a child's last words."""
    total = len(kernels)
    on_progress(0, total, "")
    lines: SimpleQueue[str | None] = SimpleQueue()
    n = min(2, len(os.sched_getaffinity(0)), total)
    waiting = {_full_name(k): k for k in kernels}
    running, done = n, 0
    children: list[subprocess.Popen[str]] = []
    try:
        children.extend(_child(kernels[i::n], lines) for i in range(n))
        while running:
            line = lines.get()
            if line is None:
                running -= 1
            else:
                name, text = line.split()
                code, kernel = Code.from_bytes(base64.b64decode(text)), waiting[name]
                assert code is not None, "what a pipe brought is whole"
                kernel.take(code)
                done += 1
                on_progress(done, total, kernel.name)
        for child in children:
            if child.wait() != 0:
                words = (child.stderr.read() if child.stderr else "").strip().splitlines()
                why = words[-1] if words else f"exit code {child.returncode}"
                raise EngineFailed(f"compiling the kernels failed: {why}")
    finally:
        for child in children:
            child.kill()
            child.wait()


def _full_name(kernel: Kernel) -> str:
    return f"{kernel.function.__module__}:{kernel.function.__name__}"


def _child(kernels: Sequence[Kernel], lines: "SimpleQueue[str | None]") -> subprocess.Popen[str]:
    names = [_full_name(k) for k in kernels]
    root = str(Path(__file__).resolve().parent.parent.parent)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.kernels.warm", str(os.getpid()), *names],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line.strip())
        lines.put(None)

    Thread(target=read, daemon=True).start()
    return child


def _die_with(parent: int) -> None:
    """Have the kernel end this process when `parent` ends, even by SIGKILL; leave at once if that has happened."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(parent: int, names: Sequence[str]) -> None:
    """The child's work: compile each named kernel into the cache."""
    _die_with(parent)
    for name in names:
        module, function = name.split(":")
        kernel: Kernel = getattr(importlib.import_module(module), function)
        print(name, base64.b64encode(kernel.code().to_bytes()).decode(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
