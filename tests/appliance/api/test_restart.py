"""`colibri serve --profile last`, ended and started again: which profile serves, and what became of a swap.

The engine is the real one with a tiny model. Not here: swaps while the service lives (test_swaps.py).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.api.service import profile_text
from tests.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 180  # a cold kernel cache compiles first
PROFILES = {
    "quick-verify": {"ctx_size": 256, "cache_type_k": "f16", "batch_size": 128, "ubatch_size": 64},
    "long-doc": {"ctx_size": 1024, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "ubatch_size": 128},
    "fallback": {"ctx_size": 512, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "load_mode": "mmap"},
}


@dataclass
class Server:
    process: subprocess.Popen[str]
    base: str
    key: str

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def state(self) -> Any:
        return self.call("GET", "/admin/state")[1]

    def until(self, *words: str) -> Any:
        end = time.monotonic() + WITHIN_S
        while (state := self.state())["state"] not in words:
            assert time.monotonic() < end, state
            time.sleep(0.05)
        return state


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    data = folder / "data"
    (data / "profiles").mkdir(parents=True, exist_ok=True)
    words = ["--default-model", str(folder / "tiny.gguf"), "--port", "0", "--data-dir", str(data), "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.cli.main", "serve", "--no-auth", "--profile", "last", *words],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = next((line for line in process.stderr if line.startswith("listening on")), "")
        assert line, "it ended before it listened"
        keys = dict(line.split()[:2] for line in (data / "keys").read_text().splitlines() if line[0] != "#")
        server = Server(process, line.split()[2].rstrip(","), keys["admin"])
        server.until("ready", "degraded")
        yield server
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama(tmp_path / "tiny.gguf")
    (tmp_path / "data" / "profiles").mkdir(parents=True)
    for name, values in PROFILES.items():
        (tmp_path / "data" / "profiles" / f"{name}.yaml").write_text(profile_text(name, values))
    return tmp_path


def facts(worker: dict[str, Any], name: str) -> dict[str, Any]:
    """What the worker reports of the keys that the profile sets, under the profile's names for them."""
    names = {"ctx_size": "n_ctx", "cache_type_k": "type_k", "cache_type_v": "type_v"}
    return {key: worker[names.get(key, key)] for key in PROFILES[name]}


def test_each_profile_runs_as_its_yaml_says_and_the_last_one_serves_after_a_restart(folder: Path) -> None:
    long_prompt = {"prompt": "word " * 90, "max_tokens": 2}
    with serving(folder) as server:
        state = server.state()
        assert state["profile"]["name"] == "quick-verify" and facts(state["worker"], "quick-verify") == (
            PROFILES["quick-verify"])  # fmt: skip
        assert server.call("POST", "/v1/completions", long_prompt)[0] == 400
        pids = [state["worker"]["pid"]]
        for name in ("long-doc", "fallback"):
            status, swap = server.call("PUT", "/api/profiles/active", {"name": name})
            assert status == 202, swap
            assert server.call("POST", "/v1/completions", long_prompt)[0] == 200, "held, then answered"
            state = server.until("ready")
            assert state["profile"]["name"] == name and facts(state["worker"], name) == PROFILES[name]
            assert not Path(f"/proc/{pids[-1]}").exists(), "the old worker and its memory are gone"
            pids.append(state["worker"]["pid"])
        assert len(set(pids)) == 3
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
    with serving(folder) as server:
        assert server.state()["profile"]["name"] == "fallback"


def test_kill_9_of_the_service_in_a_swap_leaves_the_profile_before_and_a_note(folder: Path) -> None:
    with serving(folder) as server:
        worker = server.state()["worker"]["pid"]
        _, swap = server.call("POST", "/admin/swap", {"to": "long-doc"})
        end = time.monotonic() + WITHIN_S
        while server.call("GET", f"/admin/swap/{swap['id']}")[1]["stage"] in ("plan", "drain"):
            assert time.monotonic() < end
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < end, "a worker outlived its service"
        time.sleep(0.05)
    with serving(folder) as server:
        assert server.state()["profile"]["name"] == "quick-verify"
        status, document = server.call("GET", f"/admin/swap/{swap['id']}")
        assert (status, document["state"]) == (200, "cut")
        assert any("cut by the end of the service" in event["text"] for event in server.state()["events"])


def test_when_the_last_profile_cannot_be_started_the_fallback_serves_and_says_why(folder: Path) -> None:
    broken = folder / "data" / "profiles" / "quick-verify.yaml"
    broken.write_text("name: quick-verify\nctx_sise: 256\n")
    with serving(folder) as server:
        state = server.state()
        assert (state["state"], state["profile"]["name"]) == ("degraded", "fallback")
        assert "ctx_sise" in state["reason"] and "'fallback' serves instead" in state["reason"]
        broken.write_text(profile_text("quick-verify", PROFILES["quick-verify"]))
        assert server.call("POST", "/admin/swap", {"to": "quick-verify"})[0] == 202
        assert server.until("ready")["profile"]["name"] == "quick-verify"
