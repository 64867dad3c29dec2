"""`colibri status` and the way it asks: a running service, a stranger on the port, nobody. Not here: the tui."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from appliance.cli import remote as asking
from appliance.cli import status
from engine.errors import Unreachable
from tests.appliance.api.service import service
from tests.appliance.cli.shell import Done, colibri


class Stranger(BaseHTTPRequestHandler):
    """Whatever else may sit on a port: `says` is its whole answer."""

    says: ClassVar[tuple[int, dict[str, str], bytes]]
    heard: ClassVar[list[str]]

    def do_GET(self) -> None:
        code, headers, body = self.says
        self.heard.append(f"{self.path} {self.headers['Authorization']}")
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def stranger() -> Iterator[str]:
    Stranger.heard = []
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(url: str, **env: str) -> Done:
    return colibri("status", "--url", url, COLIBRI_ADMIN_KEY="k", **env)


async def test_the_state_of_a_running_service_is_told_in_text_and_in_json(tmp_path: Path) -> None:
    """The key is found in the data folder, as for the user who started the service."""
    async with service(tmp_path) as running:
        words = ("status", "--url", running.base)
        text = await asyncio.to_thread(colibri, *words, COLIBRI_DATA_DIR=str(tmp_path / "data"))
        as_json = await asyncio.to_thread(colibri, *words, "--json", COLIBRI_ADMIN_KEY=running.admin)
        refused = await asyncio.to_thread(colibri, *words, COLIBRI_ADMIN_KEY=running.user)
        by_env = await asyncio.to_thread(
            colibri, "status", "--key-file", str(tmp_path / "data" / "keys"), COLIBRI_URL=running.base
        )
    assert (text.code, text.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in text.out.splitlines())
    assert lines["state"].startswith("[READY], up ") and "tiny/model:q4" in lines["model"]
    assert "waiting 0" in lines["queue"]
    assert json.loads(as_json.out)["model"]["id"] == "tiny/model:q4"
    assert by_env.out.splitlines()[0].startswith("state") and by_env.code == 0
    assert refused.code == 2 and len(refused.err.splitlines()) == 1 and "key" in refused.err


def test_a_state_with_any_part_missing_or_odd_is_still_told(tmp_path: Path) -> None:
    """A service of another version: every key is left out once, and every value is once something else."""
    whole = {
        "state": "swapping", "reason": "x", "uptime_s": 90061.0, "profile": {"name": "p", "rev": 3, "summary": "s"},
        "model": {"id": "m\x1b[31m", "architecture": "llama", "size": 1 << 20}, "requests": {"finished": 1},
        "worker": {"pid": 1, "n_ctx": 2048, "type_k": "f16", "type_v": "q8_0", "threads": 2},
        "slots": {"total": 1, "busy": 0}, "n_waiting": 2, "held": {"n": 1}, "ttft": {"p50_ms": 3.0},
        "speeds": {"predicted_per_second": 2.0, "prompt_per_second": None},
        "memory": {"worker": {"anon_bytes": 5}, "api": None, "machine": {"available": 1 << 30, "total": 1 << 31}},
        "swap": {"from": "a", "to": "b", "stage": "warm", "elapsed_s": 2.2, "id": "0001"},
        "last_swap": {"text": "a -> b ok"}, "error": {"message": "bad"}, "warnings": ["w"],
        "events": [{"level": "info", "text": "t"}, 7],
    }  # fmt: skip
    told = dict(status.rows(whole))
    assert told["state"] == "[SWAPPING], up 1d 01:01, x" and told["swap"] == "a -> b, warm, 0:00:02, id 0001"
    assert "\x1b" not in told["model"] and "kv f16/q8_0" in told["model"]
    for key in whole:
        for odd in (None, 7, "text", [], {}):
            assert len(list(status.rows({**whole, key: odd}))) >= 8
        assert list(status.rows({k: v for k, v in whole.items() if k != key}))
    assert [row for row in status.rows(["no", "object"]) if row[0] == "model"] == [("model", "none")]


def test_nobody_on_the_port_is_exit_5_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    done = ask(f"http://127.0.0.1:{port}")
    assert done.code == 5 and "no service answers" in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("says", "code", "words"),
    [
        ((200, {}, b"<html>hello</html>"), 5, "no Colibri service"),
        ((200, {}, b"[]"), 5, "no JSON object"),
        ((404, {}, b"nothing here"), 2, "status 404"),
        ((503, {}, b'{"error": {"message": "loading the model", "code": "model_loading"}}'), 5, "loading the model"),
        ((200, {"Content-Length": "100"}, b"{}"), 5, "too early"),
        ((302, {"Location": "http://192.0.2.1/"}, b""), 1, "status 302"),
    ],
    ids=["html", "list", "404", "error", "cut", "redirect"],
)
def test_a_stranger_on_the_port_is_told_as_one(stranger: str, says: Any, code: int, words: str) -> None:
    Stranger.says = says
    done = ask(stranger, http_proxy="http://192.0.2.1:1", HTTP_PROXY="http://192.0.2.1:1")
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1)
    assert words in done.err and Stranger.heard == ["/admin/state Bearer k"]


@pytest.mark.parametrize("words", [("apply", "long-doc"), ("abort",), ("abort", "0001")])
@pytest.mark.parametrize("answer", [b"[]", b'{"swap": {"x": 1}}', b'{"id": 5, "swap": [1]}'])
def test_a_stranger_on_the_port_begins_no_swap(stranger: str, words: tuple[str, ...], answer: bytes) -> None:
    Stranger.says = (200, {}, answer)
    done = colibri("profile", *words, "--url", stranger, COLIBRI_ADMIN_KEY="k")
    assert (done.code, done.out) == (5, "") and "no Colibri service" in done.err and done.err.count("\n") == 1


def test_a_service_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = asking.Remote(f"http://127.0.0.1:{silent.getsockname()[1]}", "k", "me", timeout_s=0.2)
        with pytest.raises(Unreachable, match="timed out"):
            there.call("GET", "/admin/state")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://a", "http://", "http://a:b", "http://a b", "http://a:99999"])
def test_an_address_that_is_none_is_refused_before_asking(url: str) -> None:
    done = ask(url)
    assert done.code == 2 and "it looks like http://127.0.0.1:8080" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "makes it at its first start"),
        ("user abc\n", "no line 'admin SECRET'"),
        ("admin \u00e9\n", "no HTTP header"),
    ],
)
def test_a_key_that_is_not_there_is_told_with_its_place(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "keys").write_text(text)
    done = colibri("status", COLIBRI_DATA_DIR=str(tmp_path))
    assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1


def test_the_name_for_the_log_is_plain_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLIBRI_USER", "j\u00f6rg\r\nX-Evil: 1" + "x" * 100)
    name = asking.who()
    assert name.startswith("j?rg??X-Evil: 1") and len(name) == 64
