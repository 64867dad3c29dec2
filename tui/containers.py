"""What docker knows of the engine's container: its state, its log, what happened to it. Not here: changing anything.

Read only, from a thread, and only where there is a socket. The SDK is imported at the first look: it takes 0.2 s that
nobody needs who has a link to the service.
"""

import grp
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tui.logbook import Entry

SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 3
LINES = 500
FIRST_S = 600  # how far back the first look reads
LABEL = "com.docker.compose.service=colibri"
ACTIONS = ("start", "stop", "kill", "die", "oom", "restart", "pause", "unpause", "health_status")
EXITS = {
    0: "ended by itself", 125: "docker could not start it", 126: "its program is not executable",
    127: "its program is missing", 134: "aborted", 137: "killed, out of memory?", 139: "crashed in native code",
    143: "told to end",
}  # fmt: skip
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "critical": "error"}


@dataclass(frozen=True)
class Engine:
    """The container of the engine as docker has it."""

    name: str
    status: str
    health: str = ""
    exit_code: int | None = None
    is_oom: bool = False
    restarts: int = 0

    @property
    def words(self) -> str:
        """`colibri-1 running, healthy, restarts 1`; of one that has ended the exit code with what it means."""
        parts = [f"{self.name} {self.status}"]
        if self.status != "running" and self.exit_code is not None:
            why = "the kernel killed it, out of memory" if self.is_oom else EXITS.get(self.exit_code, "it failed")
            parts.append(f"exit code {self.exit_code} ({why})")
        parts += [self.health] if self.health else []
        return ", ".join([*parts, f"restarts {self.restarts}"])


@dataclass(frozen=True)
class Look:
    """One look: the container, what it wrote and what happened to it since the last look, or why there is nothing."""

    engine: Engine | None = None
    entries: tuple[Entry, ...] = ()
    fault: str = ""


class Containers:
    """`look` may block for some seconds: call it from a thread, one at a time."""

    def __init__(self, url: str, socket: str = SOCKET) -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 80
        self._socket = socket
        self._client: Any = None
        self._id = ""
        self._lines_after = self._events_after = 0.0

    def look(self, with_lines: bool = True, since: float = 0.0) -> Look:
        """What is new; lines only when they are wanted, and not those written before `since`."""
        if not is_near(self._host):
            return Look(fault=f"docker: the service is on {self._host}, and so is its container")
        if fault := missing(self._socket):
            return Look(fault=fault)
        try:
            return self._look(with_lines, since)
        except ImportError:
            return Look(fault="docker: the Python package docker is not installed")
        except Exception as error:  # the SDK raises requests', urllib3's and its own; none may end this program
            self._client = None
            return Look(fault=f"docker: no answer from {self._socket}: {_short(error)}")

    def _look(self, with_lines: bool, since: float) -> Look:
        import docker

        if self._client is None:
            self._client = docker.DockerClient(base_url=f"unix://{self._socket}", timeout=TIMEOUT_S)
        container = self._find()
        if container is None:
            where = "no container of the compose service colibri or of an image colibri"
            return Look(fault=f"docker: {where} has port {self._port} or has ended")
        now = time.time()
        if container.id != self._id:
            self._id, self._lines_after, self._events_after = container.id, now - FIRST_S, now - FIRST_S
        entries = [*self._events(container.id, now)]
        if with_lines:
            entries += self._lines(container, max(self._lines_after, since))
        return Look(_engine(container.attrs), tuple(sorted(entries, key=lambda entry: entry.time)))

    def _find(self) -> Any:
        """The container that has our port, else the youngest that has ended: docker forgets the ports of those."""
        api = self._client.api
        found = api.containers(all=True, filters={"label": LABEL})
        found = found or [c for c in api.containers(all=True) if re.match(r"colibri(:|$)", str(c.get("Image", "")))]
        ours = [c for c in found if any(self._port in (p.get("PublicPort"), p.get("PrivatePort")) for p in c["Ports"])]
        ended = [c for c in found if c.get("State") != "running"]
        best = max(ours or ended, key=lambda c: c.get("Created", 0), default=None)
        return self._client.containers.get(best["Id"]) if best else None

    def _events(self, name: str, now: float) -> Iterator[Entry]:
        # The SDK's own way has no time-out; docker ends this answer by itself, since its end lies in the past.
        api, filters = self._client.api, json.dumps({"type": ["container"], "container": [name]})
        times = {"since": f"{self._events_after:.9f}", "until": int(now), "filters": filters}
        answer = api.get(f"{api.base_url}/v{api.api_version}/events", params=times, timeout=TIMEOUT_S)
        answer.raise_for_status()
        for event in map(json.loads, answer.text.splitlines()):
            at = event.get("timeNano", 0) / 1e9
            action, _, detail = str(event.get("Action", "")).partition(":")
            if at <= self._events_after or action not in ACTIONS:
                continue
            self._events_after = at
            facts = event.get("Actor", {}).get("Attributes", {})
            words = [f"{key}={facts[key]}" for key in ("signal", "exitCode") if key in facts]
            level = "warning" if action in ("die", "oom", "kill") else "info"
            said = [str(facts.get("name", "")), action, detail.strip(), *words]
            yield Entry(at, level, "docker", " ".join(word for word in said if word))

    def _lines(self, container: Any, after: float) -> list[Entry]:
        raw = container.logs(since=after, timestamps=True, tail=LINES)
        entries = [entry for line in raw.decode("utf-8", "replace").splitlines() if (entry := _line(line, after))]
        if entries:
            self._lines_after = entries[-1].time
        return entries


def is_near(host: str) -> bool:
    """Whether that address is this machine's own, or the name that compose gives the service."""
    if host in ("localhost", "colibri"):
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def missing(socket: str) -> str:
    """Which mount or which group is missing; empty when the socket can be used."""
    path = Path(socket)
    try:
        status = path.stat()
    except OSError:
        return f"docker: {socket} is not here; start this program on the host, or mount the socket read-only"
    if os.access(path, os.R_OK | os.W_OK):
        return ""
    name = str(status.st_gid)
    with suppress(KeyError):
        name = grp.getgrgid(status.st_gid).gr_name
    return f"docker: this user may not use {socket}; it takes membership in the group {name} (gid {status.st_gid})"


def _engine(attrs: dict[str, Any]) -> Engine:
    state = attrs.get("State") or {}
    health = (state.get("Health") or {}).get("Status", "")
    return Engine(
        name=str(attrs.get("Name", "?")).lstrip("/"), status=str(state.get("Status", "?")),
        health="" if health == "none" else str(health), exit_code=state.get("ExitCode"),
        is_oom=bool(state.get("OOMKilled")), restarts=int(attrs.get("RestartCount") or 0),
    )  # fmt: skip


def _line(line: str, after: float) -> Entry | None:
    """`2026-11-30T10:15:00.123456789Z 10:15:00 info    queue  ...` as an entry; None for one that is known."""
    stamp, _, text = line.partition(" ")
    try:
        whole, _, fraction = stamp.rstrip("Z").partition(".")
        at = datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        return None
    if at <= after or not text.strip():
        return None
    said = re.match(r"(?:\d\d:\d\d:\d\d )?(\w+) ", text) or re.search(r'"level": ?"(\w+)"', text)
    level = LEVELS.get(said[1].lower(), "info") if said else "info"
    return Entry(at, level, "docker", re.sub(r"^\d\d:\d\d:\d\d \w+ +", "", text), "copy")


def _short(error: Exception) -> str:
    """The first words of an error; those of the SDK are whole stack traces in one line."""
    words = str(error) or type(error).__name__
    return "timed out" if "timed out" in words.lower() else words.splitlines()[0][:120]
