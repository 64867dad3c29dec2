"""`colibri profile apply|abort` against a real service with scripted engines. Not here: the swap (api/test_swaps).

Where signals or exit codes of a process matter the command is one; else it runs in a thread, which is quicker.
"""

import asyncio
import contextlib
import io
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.profile_apply import Watch
from tests.appliance.api.service import Service, service
from tests.appliance.cli.shell import Done, colibri, inside, started

LIMITS = {"start_timeout": 20.0, "warm_timeout": 20.0, "check_timeout": 20.0}
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"ctx_size": 256, "alias": "quick", "warmup": LIMITS},
    "long": {"ctx_size": 1024, "alias": "long", "warmup": LIMITS},
    "warmer": {"ctx_size": 256, "alias": "quick", "warmup": LIMITS, "sampling": {"temp": 0.3}},
    "fallback": {"ctx_size": 512, "alias": "spare", "warmup": LIMITS},
}


@contextlib.asynccontextmanager
async def box(folder: Path, **scripts: dict[str, Any]) -> AsyncIterator[Service]:
    async with service(folder, profiles=PROFILES, profile="quick", scripts=scripts) as running:
        yield running


async def profile(running: Service, *words: str, key: str = "") -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLIBRI_ADMIN_KEY", key or running.admin)
        patch.setenv("COLIBRI_USER", "ops")
        return await asyncio.to_thread(inside, "profile", *words, "--url", running.base)


async def test_apply_shows_each_stage_and_succeeds_only_when_the_profile_serves(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        words = ("profile", "apply", "long", "--note", "for the night", "--url", running.base)
        done = await asyncio.to_thread(colibri, *words, COLIBRI_ADMIN_KEY=running.admin, COLIBRI_USER="ops")
        assert (done.code, running.services.swapper.in_force.name) == (0, "long"), done
        told = [" ".join(line.split()[:3]) for line in done.err.splitlines()]
        assert told == ["1/5 drain ok", "2/5 stop ok", "3/5 start ok", "4/5 warm ok", "5/5 check ok"]
        assert done.out.startswith("quick -> long ok ")
        document = running.services.swapper.past()[-1]
        assert (document["by"], document["note"]) == ("ops", "for the night")
        again = await profile(running, "apply", "long", "--json")
        assert again.code == 0 and json.loads(again.out)["state"] == "unchanged" and again.err == ""


async def test_what_needs_no_stop_is_applied_at_once_and_the_pid_stays(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        before = running.services.supervisor.pid  # type: ignore[attr-defined]
        done = await profile(running, "apply", "warmer")
        assert done.code == 0 and "applied without a stop" in done.out
        assert running.services.supervisor.pid == before  # type: ignore[attr-defined]
        assert running.services.settings.temp == 0.3


async def test_a_rollback_is_exit_code_1_with_the_reason_and_who_serves(tmp_path: Path) -> None:
    async with box(tmp_path, long={"load": "bad"}) as running:
        done = await profile(running, "apply", "long")
        assert (done.code, running.services.swapper.in_force.name) == (1, "quick")
        assert "rolled back to quick" in done.out and "rollback to quick ok" in done.err
        last = done.err.splitlines()[-1]
        assert last.startswith("colibri: error: long is not in force: ") and "quick serves" in last


async def test_what_is_refused_at_once_has_its_own_exit_code(tmp_path: Path) -> None:
    async with box(tmp_path, long={"load_s": 30.0}) as running:
        folder = tmp_path / "data" / "profiles"
        (folder / "bad.yaml").write_text("name: bad\nctx_sise: 1\nthreads: 010\n")
        (folder / "gone.yaml").write_text("name: gone\nmodel: gone.gguf\n")
        (folder / "huge.yaml").write_text("name: huge\nctx_size: 1000000000\n")
        for name, code, words in (
            ("lonk", 2, "did you mean 'long'?"), ("bad", 2, "bad:3:10: error: threads is '010'"),
            ("gone", 3, "there is no file gone.gguf"), ("huge", 4, "with 1,000,000,000 positions needs"),
            ("fallback@7", 2, "no revision 7"), ("x/y", 2, "is no profile name"),
        ):  # fmt: skip
            done = await profile(running, "apply", name)
            assert done.code == code and words in done.err and done.out == "", done
        no_key = await profile(running, "apply", "long", key=running.user)
        assert no_key.code == 2 and "admin" in no_key.err
        assert running.services.swapper.current is None
        begun = await profile(running, "apply", "long", "--no-wait")
        assert begun.code == 0 and "is under way: quick -> long" in begun.out
        second = await profile(running, "apply", "fallback")
        assert second.code == 1 and begun.out.split()[1] in second.err
        ended = await profile(running, "abort")
        assert ended.code == 0 and running.services.swapper.in_force.name == "quick", ended
        nothing = await profile(running, "abort")
        assert nothing.code == 1 and "no swap is under way" in nothing.err


async def test_ctrl_c_ends_the_watching_and_says_that_the_swap_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with box(tmp_path, long={"load_s": 0.8}) as running:
        monkeypatch.setenv("COLIBRI_ADMIN_KEY", running.admin)
        watching = started("profile", "apply", "long", "--url", running.base)
        assert watching.stderr is not None
        first = await asyncio.to_thread(watching.stderr.readline)
        assert first.startswith(b"1/5 drain ok")
        watching.send_signal(signal.SIGINT)
        _, told = await asyncio.to_thread(watching.communicate, None, 20)
        assert watching.returncode == 130
        assert b"goes on in the service" in told and b"colibri profile abort 0001" in told and b"Traceback" not in told
        while running.services.swapper.current is not None:
            await asyncio.sleep(0.02)
        assert running.services.swapper.in_force.name == "long"


async def test_nobody_there_is_exit_code_5() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        words = ("profile", "apply", "long-doc", "--url", url)
        done = await asyncio.to_thread(colibri, *words, COLIBRI_ADMIN_KEY="k")
    assert done.code == 5 and f"no service answers at {url}" in done.err and done.out == ""


def stage(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "took_s": 1.5, "limit_s": 60.0, "detail": "", "progress": None, **more}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_stage_under_way_and_an_old_or_new_service_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines are rewritten, so what is left at the end is only what ended."""
    out = Terminal()
    monkeypatch.setenv("COLUMNS", "120")
    watch = Watch(out)
    progress = {"done": 3 << 30, "total": 4 << 30, "unit": "bytes", "rate": 1 << 30, "eta_s": 1.0, "note": "61%"}
    stages = [stage("drain", "ok", detail="2 finished"), stage("warm", "running", progress=progress)]
    watch.see({"stages": stages, "held": {"n": 5}, "is_aborting": True})
    shown = out.getvalue()
    assert "1/2 drain ok       1.5 s  2 finished\n" in shown
    line = "2/2 warm   1.5 s  75%  3.00 GiB of 4.00 GiB  1.00 GiB/s  1 s left  61%  limit 60 s  held 5  aborting"
    assert f"\r\x1b[2K{line}" in shown
    monkeypatch.setenv("COLUMNS", "60")
    watch.see({"stages": stages})
    assert max(len(words) for words in out.getvalue().rpartition("\r\x1b[2K")[2].splitlines()) <= 59
    watch.see({"rescue": [{"profile": "quick", "why": "rollback", "state": "running", "stage": "start"}]})
    assert "rollback to quick: start" in out.getvalue()
    for odd in ({}, {"stages": [{}]}, {"stages": [{"state": "running"}]}, {"rescue": [{}]}, {"held": None}):
        watch.see(odd)
    watch.see({"stages": [stage("x\x1b[31m", "ok")], "ended": 1.0})
    assert "\x1b[31m" not in out.getvalue()
