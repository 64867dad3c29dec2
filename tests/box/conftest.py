"""The container under test: the image that ./up built, as a project of its own, so that nobody's service is touched."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.house import ROOT

READY_S = 300


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

    def post(self, path: str, body: dict[str, Any], timeout: float = 120) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=timeout)

    def ask(self, text: str, **more: Any) -> str:
        messages = [{"role": "user", "content": text}]
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
        return int(self.inside("python", "-c", script).strip() or 0)


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    """Start the image under another name and on a free port; compiled kernels are lent by the service ./up started."""
    home = os.environ.get("DOCKER_CONFIG")
    env = {**os.environ, "COMPOSE_PROJECT_NAME": "colibri-test", "BOX_PORT": "0", "BOX_MODELS": str(ROOT / "models")}
    env |= {"DOCKER_CONFIG": home} if home else {}
    made = Box("", env)
    made.compose("up", "-d", "--wait", "--no-build", "colibri")
    try:
        made.url = "http://" + made.compose("port", "colibri", "8080").strip()
        made.wait_for("/readyz", 200)
        yield made
    finally:
        made.compose("--profile", "*", "down", "-v", "--remove-orphans", check=False)
