"""Worker processes that load, serve, hang and die, for real; only their engine is scripted."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.deaths import describe
from appliance.frames import generate_frame
from appliance.life import Patience
from appliance.supervisor import BackOff
from appliance.vigil import Vigil
from appliance.wire import Frame
from appliance.worker import NICE
from engine.errors import BadModelFile, DoesNotFit, EngineDown, EngineFailed
from tests.appliance.scripted import request, script
from tests.appliance.workers import GUARD_S, Make, supervisors, until


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with supervisors() as new:
        yield new


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_start_serve_stop(make: Make) -> None:
    supervisor, heard = make(script(text="hello.", load_s=0.2))
    assert supervisor.state == "stopped"
    await supervisor.start()
    await until(lambda: supervisor.state == "loading")
    assert supervisor.progress == {"stage": "load", "done": 1, "total": 2, "note": "blk.0"}
    with pytest.raises(EngineDown):
        supervisor.send({"type": "cancel", "id": "x"})
    info = await supervisor.ready()
    pid = supervisor.pid
    assert pid is not None
    assert (info["pid"], info["n_ctx"], info["name"]) == (pid, 1000, "scripted")
    assert info["rss_anon"] > 1 << 20
    supervisor.send(generate_frame(request()))
    await until(lambda: heard.frames and heard.frames[-1]["type"] == "done")
    assert "".join(f["text"] for f in heard.frames if f["type"] == "piece") == "hello"
    await supervisor.stop()
    assert not is_alive(pid)
    assert supervisor.state == "stopped"
    assert (heard.coming, heard.ready, len(heard.lost), len(heard.gone)) == (2, 1, 0, 1)


async def test_the_worker_gives_way_and_dies_first(make: Make) -> None:
    supervisor, _ = make()
    await supervisor.start()
    await supervisor.ready()
    process = Path(f"/proc/{supervisor.pid}")
    assert (process / "oom_score_adj").read_text().strip() == "1000"
    assert os.getpriority(os.PRIO_PROCESS, supervisor.pid or 0) >= NICE
    assert os.getsid(supervisor.pid or 0) == supervisor.pid
    assert "COLIBRI_API_KEY" not in (process / "environ").read_text()


async def test_kill_9_restarts_and_names_it(make: Make) -> None:
    supervisor, heard = make()
    await supervisor.start()
    first = (await supervisor.ready())["pid"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: heard.lost)
    assert isinstance(heard.lost[0], EngineFailed)
    assert heard.lost[0].message.startswith(
        "the engine process ended while answering (signal 9, perhaps out of memory); "
    )
    assert heard.lost[0].message.endswith("it is being restarted, send the request again")
    assert supervisor.state == "restarting"
    second = (await supervisor.ready())["pid"]
    assert second != first
    assert supervisor.restarts == 1


async def test_a_segfault_leaves_its_stack_in_the_log(make: Make) -> None:
    supervisor, heard = make(script(segfault_at=1))
    await supervisor.start()
    await supervisor.ready()
    supervisor.send(generate_frame(request()))
    await until(lambda: heard.lost)
    assert "segmentation fault (signal 11)" in heard.lost[0].message
    assert any("Segmentation fault" in line for line in supervisor.log_tail)


async def test_a_bad_model_is_told_once_and_not_tried_again(make: Make) -> None:
    supervisor, heard = make(script(load="bad"))
    await supervisor.start()
    with pytest.raises(BadModelFile, match="cut short"):
        await supervisor.ready()
    assert (supervisor.state, supervisor.restarts) == ("crashed", 0)
    assert supervisor.error is not None
    assert supervisor.error.exit_code == 3
    (gone,) = heard.gone
    assert (gone.status, gone.message) == (
        503,
        "no model is loaded: tensor 41 ends 2,048 bytes past the file; the download is cut short",
    )


async def test_what_never_fitted_is_final_and_what_once_fitted_is_tried_again(make: Make) -> None:
    never, _ = make(script(load="full"))
    await never.start()
    with pytest.raises(DoesNotFit):
        await never.ready()
    assert never.restarts == 0
    once, _ = make()
    await once.start()
    pid = (await once.ready())["pid"]
    once.spec = script(load="full")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: once.restarts == 2)
    once.spec = script()
    await once.ready()


async def test_a_load_that_always_dies_is_given_up_with_its_reason(make: Make) -> None:
    supervisor, heard = make(script(load="die"), back_off=BackOff(first_s=0.01, longest_s=0.02, ends=3))
    await supervisor.start()
    with pytest.raises(
        EngineDown, match=r"3 times before it was ready \(an illegal instruction \(signal 4\).*COLIBRI_ISA=v2"
    ):
        await supervisor.ready()
    assert supervisor.restarts == 2
    assert len(heard.gone) == 1


async def test_after_giving_up_start_begins_anew(make: Make) -> None:
    supervisor, _ = make(script(load="raise"), back_off=BackOff(first_s=0.01, ends=1))
    await supervisor.start()
    with pytest.raises(EngineDown, match="RuntimeError"):
        await supervisor.ready()
    assert any("no such thing" in line for line in supervisor.log_tail)
    supervisor.spec = script()
    await supervisor.start()
    assert (await supervisor.ready())["n_ctx"] == 1000


async def test_ends_are_forgiven_by_a_served_request(make: Make) -> None:
    supervisor, heard = make(back_off=BackOff(first_s=0.01, longest_s=0.01, ends=2))
    await supervisor.start()
    for n in range(1, 4):
        os.kill((await supervisor.ready())["pid"], signal.SIGKILL)
        await until(lambda n=n: len(heard.lost) == n)
        supervisor.served()
    os.kill((await supervisor.ready())["pid"], signal.SIGKILL)
    await until(lambda: len(heard.lost) == 4)
    os.kill((await supervisor.ready())["pid"], signal.SIGKILL)
    await until(lambda: supervisor.state == "crashed")
    assert "2 times within 120 s without serving a request" in heard.gone[0].message


async def test_an_engine_that_computes_without_getting_anywhere_is_ended(make: Make) -> None:
    supervisor, heard = make(script(hang_at=1), patience=Patience(beat_s=1.5))
    await supervisor.start()
    await supervisor.ready()
    supervisor.send(generate_frame(request()))
    await until(lambda: heard.lost)
    assert "without getting anywhere" in heard.lost[0].message
    assert any("scripted.py" in line for line in supervisor.log_tail), "the stacks are missing"


async def test_a_worker_that_is_stopped_dead_is_ended(make: Make) -> None:
    supervisor, heard = make(patience=Patience(beat_s=1.5))
    await supervisor.start()
    pid = (await supervisor.ready())["pid"]
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: heard.lost)
    assert "no sign of life" in heard.lost[0].message
    assert not is_alive(pid)


async def test_a_worker_that_never_reports_is_ended(make: Make) -> None:
    supervisor, heard = make(patience=Patience(load_s=0.3), prefix=("/bin/sh", "-c", "sleep 60"))
    await supervisor.start()
    await until(lambda: heard.lost)
    assert "it did not report within" in heard.lost[0].message


async def test_stop_while_loading_and_while_hanging(make: Make) -> None:
    for spec in (script(load_s=60), script(hang_at=1)):
        supervisor, _ = make(spec, patience=Patience(stop_s=1.0))
        await supervisor.start()
        await until(lambda supervisor=supervisor: supervisor.state in ("loading", "ready"))
        if spec.options.get("hang_at"):
            await supervisor.ready()
            supervisor.send(generate_frame(request()))
        pid = supervisor.pid
        assert pid is not None
        await supervisor.stop()
        assert not is_alive(pid)


async def test_sigterm_from_outside_ends_it_cleanly_and_it_comes_back(make: Make) -> None:
    supervisor, heard = make(script(step_s=0.05, text="a"))
    await supervisor.start()
    pid = (await supervisor.ready())["pid"]
    supervisor.send(generate_frame(request()))
    await until(lambda: heard.frames)
    os.kill(pid, signal.SIGTERM)
    await until(lambda: heard.lost)
    assert "(exit code 0)" in heard.lost[0].message
    assert heard.frames[-1]["type"] == "cancelled"
    await supervisor.ready()


async def test_a_stranger_at_the_socket_is_shown_out(make: Make) -> None:
    supervisor, _ = make(script(), prefix=("/bin/sh", "-c", 'sleep 0.3; exec "$@"', "sh"))
    await supervisor.start()
    await until(lambda: supervisor.pid)
    words = Path(f"/proc/{supervisor.pid}/cmdline").read_bytes().split(b"\0")
    path = words[words.index(b"--socket") + 1]
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(path)
        stranger.settimeout(GUARD_S)
        folder = Path(os.path.dirname(path.decode()))
        assert folder.stat().st_mode & 0o777 == 0o700
        await supervisor.ready()
        assert stranger.recv(1) == b""
    assert not folder.exists()


async def test_the_worker_dies_with_its_parent(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from appliance.supervisor import Supervisor
from tests.appliance.scripted import script
async def main():
    s = Supervisor(script())
    await s.start()
    print((await s.ready())["pid"], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(await asyncio.wait_for(parent.stdout.readline(), GUARD_S))
    assert is_alive(worker)
    parent.kill()
    await parent.wait()
    await until(lambda: not is_alive(worker) or _is_zombie(worker))


def _is_zombie(pid: int) -> bool:
    """A container without an init leaves orphans unburied."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_a_socket_path_too_long_is_avoided(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    supervisor, _ = make()
    await supervisor.start()
    await supervisor.ready()
    assert list(long.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a defect")])
async def test_what_keeps_a_process_from_starting_is_an_end_like_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def folder() -> str:
        raise error

    supervisor, heard = make()
    with monkeypatch.context() as patch:
        patch.setattr("appliance.life._private_folder", folder)
        await supervisor.start()
        await until(lambda: len(heard.lost) == 2)
    assert ("No space left" if isinstance(error, OSError) else "met ValueError") in heard.lost[0].message
    await supervisor.ready()


def test_a_worker_without_a_server_says_so() -> None:
    import subprocess

    words = [sys.executable, "-m", "appliance.worker", "--socket", "/nowhere/s", "--spec", "{}"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=GUARD_S)
    assert done.returncode == 5
    assert (
        done.stderr == "worker: nobody listens at the given socket (No such file or directory); use `colibri serve`\n"
    )


def test_causes_of_death_in_words() -> None:
    never = (1 << 60, 1 << 60)
    assert describe(-9, never) == "signal 9, perhaps out of memory"
    assert "memory limit of this container" in describe(-9, (-1, 1 << 60))
    assert "machine ran out of memory" in describe(-9, (1 << 60, -1))
    assert "COLIBRI_ISA=v2" in describe(-4, never)
    assert describe(-15, never) == "SIGTERM (signal 15)"
    assert describe(-250, never) == "signal 250"
    assert describe(3, never) == "exit code 3"
    assert "folder for temporary files" in describe(5, never)


class TestVigil:
    """Time is fed in by hand."""

    @staticmethod
    def beat(n: int, busy: bool = True) -> Frame:
        return {"type": "beat", "beat": n, "busy": busy}

    def test_a_long_load_is_alive_while_it_gets_on(self) -> None:
        vigil = Vigil(60, 600)
        for n in range(1000):
            vigil.saw({"type": "progress", "done": n})
            assert vigil.age(50) is None
            vigil.saw(self.beat(0, busy=False))

    def test_a_load_that_stands_still_is_not(self) -> None:
        vigil = Vigil(60, 600)
        verdicts = []
        for _ in range(13):
            vigil.saw(self.beat(0, busy=False))
            verdicts.append(vigil.age(50))
        assert verdicts[:12] == [None] * 12
        assert verdicts[12] == "it loaded for 650 s without getting anywhere"

    def test_idle_is_alive_and_a_beat_that_grows_is_alive(self) -> None:
        vigil = Vigil(60, 600)
        vigil.saw({"type": "ready"})
        for busy in (False, True):
            for n in range(100):
                vigil.saw(self.beat(n + 1 if busy else 0, busy))
                assert vigil.age(50) is None

    def test_the_limit_follows_a_slow_machines_planned_step(self) -> None:
        vigil = Vigil(60, 600)
        vigil.saw({"type": "ready", "planned_step_s": 40.0})
        vigil.saw(self.beat(1))
        for _ in range(3):
            assert vigil.age(60) is None
            vigil.saw(self.beat(1))
        assert vigil.age(60) is not None


def test_our_own_stall_is_not_held_against_the_worker() -> None:
    async def stalled() -> None:
        watching = asyncio.create_task(Vigil(1.2, 1.2).watch())
        await asyncio.sleep(0)
        time.sleep(1.6)
        await asyncio.sleep(0.01)
        assert not watching.done()
        watching.cancel()

    asyncio.run(stalled())
