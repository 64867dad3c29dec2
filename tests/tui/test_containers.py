"""What is read of docker: against a small daemon of our own on a socket, and against the real one (-m box)."""

import asyncio
import json
import os
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tui.containers import SOCKET, Containers, Look, is_near, missing

NOW = time.time()
STAMP = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW))


class Daemon:
    """The five questions of docker's HTTP API that are asked, with one container."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)
        self.asked: list[tuple[str, str]] = []
        self.ports: list[dict[str, Any]] = [{"PrivatePort": 8080, "PublicPort": 8080, "Type": "tcp"}]
        self.state: dict[str, Any] = {"Status": "running", "ExitCode": 0, "Health": {"Status": "healthy"}}
        self.lines: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.hangs = False

    async def any(self, request: web.Request) -> web.StreamResponse:
        path = request.path.split("/", 2)[-1] if request.path.startswith("/v1") else request.path.lstrip("/")
        self.asked.append((request.method, path))
        while self.hangs:
            await asyncio.sleep(0.05)
        if path == "version":
            return web.json_response({"ApiVersion": "1.41"})
        if path == "containers/json":
            facts = {"Id": "abc", "Image": "colibri:local", "Created": 1, "State": self.state["Status"]}
            return web.json_response([{**facts, "Ports": self.ports if self.state["Status"] == "running" else []}])
        if path == "containers/abc/json":
            facts = {"Id": "abc", "Name": "/colibri-1", "State": self.state, "RestartCount": 1}
            return web.json_response({**facts, "Config": {"Tty": False}})
        if path == "containers/abc/logs":
            parts = [f"{line}\n".encode() for line in self.lines]
            return web.Response(body=b"".join(struct.pack(">BxxxL", 2, len(part)) + part for part in parts))
        if path == "events":
            return web.Response(text="".join(json.dumps(event) + "\n" for event in self.events))
        return web.json_response({"message": f"no {path}"}, status=404)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    made = Daemon(tmp_path / "docker.sock")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.any)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, made.socket).start()
    yield made
    made.hangs = False
    await runner.cleanup()


async def test_state_lines_and_events_of_the_container(daemon: Daemon) -> None:
    daemon.lines = [f"{STAMP}.100000000Z 10:15:00 warning serve      no key is needed",
                    f'{STAMP}.200000000Z {{"time": "x", "level": "error", "message": "m"}}',
                    f"{STAMP}.300000000Z some other program's words", "no time here"]  # fmt: skip
    actor = {"Attributes": {"name": "colibri-1", "exitCode": "137"}}
    happened = (("die", 5), ("exec_create: sh", 4.5), ("health_status: healthy", 4))
    daemon.events = [{"Action": what, "timeNano": int((NOW - ago) * 1e9), "Actor": actor} for what, ago in happened]
    containers = Containers("http://127.0.0.1:8080", daemon.socket)
    look = await asyncio.to_thread(containers.look)
    assert look.engine is not None and look.engine.words == "colibri-1 running, healthy, restarts 1"
    assert [(e.level, e.kind, e.text) for e in look.entries] == [
        ("warning", "line", "colibri-1 die exitCode=137"),
        ("info", "line", "colibri-1 health_status healthy exitCode=137"),
        ("warning", "copy", "serve      no key is needed"),
        ("error", "copy", '{"time": "x", "level": "error", "message": "m"}'),
        ("info", "copy", "some other program's words"),
    ]
    again = await asyncio.to_thread(containers.look)
    assert again.entries == (), "each once"
    assert {method for method, _path in daemon.asked} == {"GET"}, "nothing is changed"


@pytest.mark.parametrize("code,oom,words", [
    (137, False, "exit code 137 (killed, out of memory?)"), (137, True, "(the kernel killed it, out of memory)"),
    (0, False, "exit code 0 (ended by itself)"), (42, False, "exit code 42 (it failed)"),
])  # fmt: skip
async def test_the_exit_code_in_words(daemon: Daemon, code: int, oom: bool, words: str) -> None:
    daemon.state = {"Status": "exited", "ExitCode": code, "OOMKilled": oom}
    look = await asyncio.to_thread(Containers("http://127.0.0.1:8080", daemon.socket).look, False)
    assert look.engine is not None and words in look.engine.words


async def test_a_container_with_another_port_is_not_ours(daemon: Daemon) -> None:
    look = await asyncio.to_thread(Containers("http://127.0.0.1:9999", daemon.socket).look)
    assert look.engine is None and "has port 9999" in look.fault


async def test_lines_are_asked_for_only_when_they_are_wanted(daemon: Daemon) -> None:
    await asyncio.to_thread(Containers("http://127.0.0.1:8080", daemon.socket).look, False)
    assert not any(path.endswith("/logs") for _method, path in daemon.asked)


async def test_a_daemon_that_hangs_or_lies_is_a_sentence(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.containers.TIMEOUT_S", 0.2)
    daemon.hangs = True
    containers = Containers("http://127.0.0.1:8080", daemon.socket)
    assert "timed out" in (await asyncio.to_thread(containers.look)).fault
    daemon.hangs = False
    daemon.state = {"Status": "running", "Health": 5}
    fault = (await asyncio.to_thread(containers.look)).fault
    assert fault.startswith("docker: no answer from") and "\n" not in fault


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    none = Containers("http://127.0.0.1:8080", str(tmp_path / "none.sock")).look()
    assert "is not here" in none.fault and "mount the socket" in none.fault
    closed = tmp_path / "closed.sock"
    closed.write_text("")
    closed.chmod(0)
    fault = missing(str(closed))
    assert ("membership in the group" in fault and "gid" in fault) or os.geteuid() == 0


@pytest.mark.parametrize("host,near", [("127.0.0.1", True), ("::1", True), ("localhost", True), ("colibri", True),
                                       ("10.2.0.9", False), ("edge-07", False), ("", False)])  # fmt: skip
def test_docker_of_this_machine_says_nothing_of_another(host: str, near: bool) -> None:
    assert is_near(host) is near
    if host and not near:
        assert f"the service is on {host}" in Containers(f"http://{host}:8080").look().fault


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()


def watch(containers: Containers, until: Callable[[Look], bool]) -> Iterator[Look]:
    """Looks until one is as wanted, at most ten seconds."""
    end = time.monotonic() + 10
    while True:
        yield (look := containers.look())
        if until(look):
            return
        assert time.monotonic() < end, look


@pytest.mark.box
def test_a_real_container_lives_and_is_killed() -> None:
    script = "echo '10:00:00 warning serve      hello from the box'; sleep 100"
    name = docker("run", "-d", "--label", "com.docker.compose.service=colibri", "-p", "127.0.0.1::8080",
                  "--entrypoint", "sh", "colibri:local", "-c", script)  # fmt: skip
    try:
        port = docker("port", name, "8080").rpartition(":")[2]
        containers = Containers(f"http://127.0.0.1:{port}", SOCKET)
        seen = list(watch(containers, lambda look: any("hello from the box" in e.text for e in look.entries)))
        assert seen[-1].engine is not None and seen[-1].engine.status == "running"
        docker("kill", name)
        seen = list(watch(containers, lambda look: look.engine is not None and look.engine.status != "running"))
        assert seen[-1].engine is not None and "exit code 137" in seen[-1].engine.words
        # docker is asked for events up to the last whole second, so this one comes a second later.
        if not any("die exitCode=137" in entry.text for look in seen for entry in look.entries):
            list(watch(containers, lambda look: any("die exitCode=137" in entry.text for entry in look.entries)))
    finally:
        docker("rm", "-f", name)
