"""The container under test: the image that ./up built, as a project of its own, so that nobody's service is touched."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.house import ROOT

READY_S = 300
PROJECT = "colibri-test"
# The README's. Under the model's own system message its first word is a coin toss between two near ties.
SYSTEM = "You are a helpful assistant. Answer in one sentence."


@dataclass
class Box:
    """A running project: its published address, and docker compose for it."""

    url: str
    env: dict[str, str]

    def compose(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(["docker", "compose", *words], cwd=ROOT, env=self.env, capture_output=True, text=True)
        assert not check or done.returncode == 0, f"docker compose {' '.join(words)}: {done.stderr[-2000:]}"
        return done.stdout

    def inside(self, *argv: str, check: bool = True, user: str = "10001") -> str:
        return self.compose("exec", "-T", "--user", user, "colibri", *argv, check=check)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def admin(self, path: str) -> Any:
        """A document of the service for whoever holds its admin key."""
        keys = dict(line.split()[:2] for line in self.inside("cat", "/data/keys").splitlines() if line[:1].isalpha())
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {keys['admin']}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def post(self, path: str, body: dict[str, Any], timeout: float = 120) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=timeout)

    def ask(self, text: str, **more: Any) -> str:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        body = {"model": "smollm2", "temperature": 0, "max_tokens": 64, "messages": messages, **more}
        with self.post("/v1/chat/completions", body) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    def wait_for(self, path: str, status: int, within_s: float = READY_S) -> str:
        until = time.monotonic() + within_s
        seen: object = None
        while time.monotonic() < until:
            try:
                seen = self.get(path)
                if seen[0] == status:
                    return seen[1]
            except OSError as error:
                seen = error
            time.sleep(0.1)
        raise AssertionError(f"{path} did not answer {status} within {within_s} s; last: {seen}")

    def find(self) -> None:
        """Look where it is published now, a free port that every start chooses anew, and wait until it is ready."""
        self.url = "http://" + self.compose("port", "colibri", "8080").strip()
        self.wait_for("/readyz", 200)

    def setting(self, name: str, default: str) -> str:
        """What Compose takes for a BOX_* variable: the environment's value, else the one in .env, else the default."""
        file = ROOT / ".env"
        lines = file.read_text().splitlines() if file.exists() else []
        noted = dict(line.split("=", 1) for line in lines if "=" in line)
        return self.env.get(name, noted.get(name, default))

    def worker(self) -> int:
        """The process id of the engine's process, inside the container; found as an administrator would."""
        script = """
import pathlib
for p in pathlib.Path('/proc').glob('[0-9]*'):
    try:
        if b'appliance.worker' in (p / 'cmdline').read_bytes().split(b'\\0'):
            print(p.name)
            break
    except OSError:
        pass
"""
        found = self.inside("python", "-c", script).strip()
        assert found, "no worker runs in the container"
        return int(found)

    def kill(self, pid: int) -> None:
        self.inside("sh", "-c", f"kill -9 {pid}")


def clear(box: Box) -> None:
    """Nothing of its project is left: a container that a failed test left would hold its volumes, profiles and all."""
    project = box.env["COMPOSE_PROJECT_NAME"]
    ours = ["docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={project}"]
    if left := subprocess.run(ours, capture_output=True, text=True, check=True).stdout.split():
        subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False)
    box.compose("--profile", "*", "down", "-v", "--remove-orphans", check=False)


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    """Start the image under another name and on a free port."""
    with started(PROJECT, BOX_MODELS=str(ROOT / "models")) as made:
        yield made


@contextmanager
def started(project: str, **settings: str) -> Iterator[Box]:
    """The image as a project of that name on a free port, ready; nothing of it is left behind."""
    made = Box("", {**os.environ, "COMPOSE_PROJECT_NAME": project, "BOX_PORT": "0", **settings})
    clear(made)
    try:
        made.compose("up", "-d", "--wait", "--no-build", "colibri")
        made.find()
        yield made
    finally:
        clear(made)
