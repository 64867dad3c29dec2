"""A service with a real engine and a tiny model, and the environment in which a user's shell starts programs."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.house import ROOT
from tests.conftest import KERNEL_CACHE
from tests.terminal.processes import wait_until
from tests.terminal.sshd import Sshd, sshd
from tests.tiny import tiny_llama

START_S = 180  # a cold kernel cache compiles first
MODEL = "tiny"


@dataclass
class Served:
    """A running `colibri serve`: what it says, and the command line of a terminal program that watches it."""

    url: str
    key: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    log: Path
    env: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, sent, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def state(self) -> Any:
        return self.call("GET", "/admin/state")

    def serves(self, profile: str) -> bool:
        """Whether that profile is in force, ready, and no swap under way."""
        now = self.state()
        return now["state"] == "ready" and now["swap"] is None and now["profile"]["name"] == profile

    def swap(self, profile: str) -> None:
        """Change to a profile and wait until it serves; nothing when it does."""
        wait_until(lambda: self.state()["swap"] is None, 60, "the end of the swap before")
        if not self.serves(profile):
            self.call("POST", "/admin/swap", {"to": profile})
            wait_until(lambda: self.serves(profile), 60, f"the swap to {profile}")

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tui", "--url", self.url, *words]

    def at(self, **more: str) -> dict[str, str]:
        """The environment of a shell on a modern terminal, with `more`; an empty value takes a variable away."""
        env = {**self.env, "TERM": "xterm-256color", "LANG": "C.UTF-8",
               "COLIBRI_TUI_KEY_FILE": str(self.folder / "data" / "keys"), **more}  # fmt: skip
        return {name: value for name, value in env.items() if value}


@contextlib.contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    """Start one in `folder`; ready when this returns, ended at the end."""
    model = tiny_llama(folder / f"{MODEL}.gguf")
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1", "COLIBRI_KERNEL_CACHE": KERNEL_CACHE,
        "COLIBRI_DEFAULT_MODEL": str(model), "COLIBRI_DEFAULT_ALIAS": MODEL,
    }  # fmt: skip
    (folder / "home").mkdir()
    log = folder / "serve.log"
    data = folder / "data"
    argv = [sys.executable, "-m", "appliance.cli.main", "serve", "--port", "0", "-t", "1", "--data-dir", str(data)]
    with log.open("wb") as file:
        process = subprocess.Popen([*argv, *words], cwd=ROOT, env=env, stderr=file, stdout=file)
    try:
        wait_until(lambda: "listening on" in log.read_text() or process.poll() is not None, 60, "a listening service")
        line = next((line for line in log.read_text().splitlines() if line.startswith("listening on")), "")
        assert line, log.read_text()[-2000:]
        keys = dict(row.split()[:2] for row in (data / "keys").read_text().splitlines() if row[0] != "#")
        shell = {name: env[name] for name in ("PATH", "HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
        served = Served(line.split()[2].rstrip(","), keys["admin"], folder, process, log, shell)
        wait_until(lambda: served.state()["state"] == "ready", START_S, "a ready engine")
        yield served
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), "--profile", "last") as found:
        yield found


@pytest.fixture(scope="session")
def ssh() -> Iterator[Sshd]:
    # Not below pytest's own folder, which nobody else may enter: the user who logs in is another one.
    with tempfile.TemporaryDirectory(prefix="colibri-ssh-") as folder, sshd(Path(folder), sys.executable) as found:
        yield found
