"""Colibri as benchmarks run it: the command, and a server for the length of a `with`. Not here: peers (llamacpp.py)."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.llamacpp import free_port, wait_for_health
from benchmarks.machine import pin_self

ROOT = Path(__file__).parent.parent


def command(*words: str) -> list[str]:
    """`colibri ...` where it is installed, else the same from this checkout."""
    installed = shutil.which("colibri")
    return [installed, *words] if installed else [sys.executable, "-m", "appliance.cli.main", *words]


def our_version() -> str:
    """The distribution's version and, in a checkout, the commit measured."""
    try:
        name = version("colibri-runtime")
    except PackageNotFoundError:
        name = "checkout"
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return f"{name} ({commit})" if commit else name


class Server:
    """`colibri serve` on a free port with its own data folder; /v1 is open, the admin key is read from the folder."""

    def __init__(
        self, model: Path, *, n_ctx: int, n_threads: int, cpus: Sequence[int], flags: Sequence[str] = ()
    ) -> None:
        self.data = tempfile.TemporaryDirectory(prefix="colibri-bench-")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        sizes = ["-c", str(n_ctx), "-t", str(n_threads), "--port", str(port), "--data-dir", self.data.name]
        self.command = command("serve", "-m", str(model), *sizes, "--no-auth", *flags)
        self.cpus = cpus

    def __enter__(self) -> Self:
        log = Path(self.data.name) / "benchmark.log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=out, stderr=out, preexec_fn=partial(pin_self, self.cpus)
            )
        try:
            wait_for_health(self.url, self.process)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{log.read_text()[-2000:]}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.data.cleanup()

    def state(self) -> Any:
        """GET /admin/state, with the key that the first start wrote."""
        lines = [line.split() for line in (Path(self.data.name) / "keys").read_text().splitlines()]
        secret = next(line[1] for line in lines if line and line[0] == "admin")
        request = urllib.request.Request(f"{self.url}/admin/state", headers={"Authorization": f"Bearer {secret}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
