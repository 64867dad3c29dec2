"""Nobody can be started, and later somebody can: the service comes back by itself, and who waited is answered.

With a scripted engine, and with the real one in a control group whose memory runs out. Not here: who is tried first.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.api.service import service
from tests.appliance.api.test_restart import Server, facts, folder, serving
from tests.appliance.api.test_swaps import box, ended, parts, profiles, until

__all__ = ["folder"]
DYING: dict[str, Any] = {"load": "die"}
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


async def test_a_shortage_that_passes_is_survived_without_anybodys_help(tmp_path: Path) -> None:
    short = dict.fromkeys(("quick", "long", "fallback"), DYING)
    async with box(tmp_path) as running:
        swapper, supervisor = parts(running)
        swapper.again.first_s, swapper.again.longest_s = 0.2, 0.4
        swapper.in_force.worker.options.update(DYING)  # type: ignore[attr-defined]
        prepare = swapper._prepared

        def prepared(*words: Any) -> Any:
            made = prepare(*words)
            made.worker.options.update(short.get(made.name, {}))  # type: ignore[attr-defined]
            return made

        swapper._prepared = prepared
        swap = await swapper.begin("long")
        held = asyncio.create_task(running.chat())
        assert await ended(swapper, swap) == "crashed"
        await until(lambda: len(swapper.ended) >= 3)
        assert {again.state for again in swapper.ended[1:]} == {"crashed"} and not held.done()
        assert str(swapper.state()["reason"]).count("no profile could be started") <= 1, "reasons do not pile up"
        short.clear()
        status, body, _ = await held
        assert (status, body["model"], swapper.in_force.name) == (200, "quick", "quick")
        await until(lambda: swapper.state() == {"state": "ready", "reason": None})
        n = len(swapper.ended)
        await asyncio.sleep(1.0)
        assert len(swapper.ended) == n and supervisor.state == "ready", "nothing is tried any more"


async def test_the_fallback_itself_is_tried_again_when_its_engine_gave_up(tmp_path: Path) -> None:
    given = profiles()
    async with service(tmp_path, profiles={"quick": given["quick"]}, profile="fallback") as running:
        swapper, supervisor = parts(running)
        swapper.again.first_s = 0.3
        supervisor.spec.options.update({"load": "bad"})  # type: ignore[attr-defined]
        os.kill(supervisor.pid or 0, 9)
        await until(lambda: swapper.state()["state"] == "crashed")
        await until(lambda: swapper.state()["state"] == "ready")
        assert (await running.chat())[0] == 200 and swapper.in_force.name == "fallback"


class Group:
    """A control group of our own that limits memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = (("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current"))
        self._limit, self._used = next(
            (folder / limit, folder / used) for limit, used in names if (folder / limit).exists()
        )

    def take(self, pid: int) -> None:
        """A process and all its children."""
        (self.folder / "cgroup.procs").write_text(str(pid))
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            self.take(int(child))

    def used(self) -> int:
        return int(self._used.read_text())

    def limit(self, n_bytes: int) -> None:
        self._limit.write_text(str(n_bytes))

    def has_room(self) -> bool:
        """Nobody is being killed: while a dead engine's memory is still counted, a connection that the service takes
        would have the kernel kill the service too."""
        return self.used() < int(self._limit.read_text()) - (8 << 20)


@pytest.fixture
def group() -> Iterator[Group]:
    base = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    place = base / f"colibri-shortage-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    try:
        yield Group(place)
    finally:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                place.rmdir()
                break
            time.sleep(0.1)


def until_state(server: Server, group: Group, *words: str, within_s: float = 60.0) -> Any:
    end, state = time.monotonic() + within_s, None
    while state is None or state["state"] not in words:
        assert time.monotonic() < end, state
        time.sleep(0.05)
        if group.has_room():
            state = server.state()
    return state


def test_when_the_kernel_kills_every_engine_for_memory_the_last_one_comes_back_with_the_room(
    folder: Path, group: Group
) -> None:
    with serving(folder) as server:
        group.take(server.process.pid)
        group.limit(4 << 30)
        worker = server.state()["worker"]["pid"]
        _, swap = server.call("POST", "/admin/swap", {"to": "long-doc"})
        end = time.monotonic() + 60
        while Path(f"/proc/{worker}").exists():  # the old engine is gone, the new one has not got its memory
            assert time.monotonic() < end
        # Room for an interpreter, so that the service itself lives, and too little for one with an engine in it.
        group.limit(group.used() + (32 << 20))
        state = until_state(server, group, "crashed")
        document = server.call("GET", f"/admin/swap/{swap['id']}")[1]
        assert document["state"] == "crashed" and "signal 9" in document["reason"]["message"], document
        assert "no profile could be started" in state["reason"] and "tried again" in state["reason"]
        group.limit(4 << 30)
        state = until_state(server, group, "ready")
        assert state["profile"]["name"] == "quick-verify" and facts(state["worker"], "quick-verify")
        assert server.call("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 2})[0] == 200
