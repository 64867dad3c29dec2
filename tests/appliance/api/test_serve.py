"""`colibri serve` as a process: a real engine, real signals, the real client; and starts that must not succeed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[3]
START_S = 180  # a cold kernel cache compiles first
MEMORY_KB = 150 * 1024


@dataclass
class Server:
    process: subprocess.Popen[str]
    base: str
    keys: dict[str, str]

    def get(self, path: str, key: str = "user") -> Any:
        asked = urllib.request.Request(self.base + path, headers={"Authorization": f"Bearer {self.keys[key]}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def client(self, **changes: Any) -> openai.OpenAI:
        given = {"api_key": self.keys["user"], "max_retries": 0, "timeout": 60, **changes}
        return openai.OpenAI(base_url=self.base + "/v1", **given)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "appliance.cli.main", "serve", *arguments]


@contextlib.contextmanager
def serving(folder: Path, model: Path, *arguments: str) -> Iterator[Server]:
    data = folder / "data"
    process = subprocess.Popen(
        command("-m", str(model), "--port", "0", "--data-dir", str(data), "--threads", "1", *arguments),
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if line.startswith("listening on")), "")
        assert line, "it ended before it listened"
        base = line.split()[2].rstrip(",")
        lines = [words.split() for words in (data / "keys").read_text().splitlines() if words[0] != "#"]
        server = Server(process, base, {words[0]: words[1] for words in lines})
        began = time.monotonic()
        while server.get("/admin/state", "admin")["state"] != "ready":
            assert time.monotonic() - began < START_S
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    with serving(folder, tiny_llama(folder / "tiny.gguf"), "--alias", "tiny") as running:
        yield running


def test_a_model_for_answers_says_that_it_makes_no_vectors(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="makes no embeddings: its file names no way of pooling"):
        server.client().embeddings.create(model="tiny", input="a")


def test_the_official_client_chats_plain_and_streamed(server: Server) -> None:
    client = server.client()
    assert [model.id for model in client.models.list()] == ["tiny"]
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 5}
    plain = client.chat.completions.create(**asked)
    again = client.chat.completions.create(**asked)
    other = client.chat.completions.create(**{**asked, "seed": 6})
    text = plain.choices[0].message.content
    assert text == again.choices[0].message.content != other.choices[0].message.content
    assert plain.usage is not None
    assert plain.usage.completion_tokens <= 12
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage == again.usage  # the first one read the prompt, which the others did not
    assert chunks[-2].choices[0].finish_reason == plain.choices[0].finish_reason
    client.close()


def test_the_second_turn_of_a_chat_shows_what_was_not_read_again(server: Server) -> None:
    client = server.client()
    talk: Any = [{"role": "user", "content": "What does the small bird know? " * 9}]
    asked: Any = {"model": "tiny", "max_tokens": 12, "temperature": 0}
    first = client.chat.completions.create(**asked, messages=talk)
    assert first.usage is not None and first.usage.prompt_tokens_details is not None
    assert (first.usage.prompt_tokens_details.cached_tokens or 0) < 20  # the template's first words
    talk += [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "And?"}]
    second = client.chat.completions.create(**asked, messages=talk)
    assert second.usage is not None and second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None and first.usage.prompt_tokens - 8 < cached < second.usage.prompt_tokens
    client.close()


def test_the_official_client_completes_with_logprobs_and_bias(server: Server) -> None:
    client = server.client()
    asked: Any = {"model": "tiny", "prompt": "abc", "max_tokens": 4, "temperature": 0}
    plain = client.completions.create(**asked, logprobs=3)
    logprobs = plain.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert all(value is not None and value <= 0 for value in logprobs.token_logprobs)
    forced = client.completions.create(**asked, logit_bias={"70": 100})
    [token] = set(client.post("/../tokenize", body={"content": forced.choices[0].text}, cast_to=dict)["tokens"])  # type: ignore[arg-type]
    assert token == 70
    client.close()


def test_errors_are_the_client_s_own_classes(server: Server) -> None:
    client = server.client()
    ask: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(**ask, temperature=-1)
    assert (bad.value.param, bad.value.code) == ("temperature", "unsupported_value")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "word " * 2000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**ask, "model": "nope"})
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="nope").models.list()
    with pytest.raises(openai.PermissionDeniedError):
        client.get("/../admin/state", cast_to=dict)
    client.close()


def test_the_api_process_is_small(server: Server) -> None:
    server.client().completions.create(model="tiny", prompt="x", max_tokens=1)
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines())
    assert int(facts["VmRSS"].split()[0]) <= MEMORY_KB
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "llvmlite" not in maps


def test_a_second_server_on_the_port_is_exit_5(server: Server, tmp_path: Path) -> None:
    port = server.base.rpartition(":")[2]
    model = tiny_llama(tmp_path / "tiny.gguf")
    done = ended(tmp_path, "-m", str(model), "--port", port)
    assert done.returncode == 5
    assert port in done.stderr
    assert "--port" in done.stderr


def ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("--data-dir", str(folder / "data"), *arguments), cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("make", "arguments", "code"),
    [
        (lambda path: path.write_text("this is no model\n" * 100), (), 3),
        (lambda path: path.write_bytes(tiny_llama(path).read_bytes()[:5000]), (), 3),
        (lambda path: tiny_llama(path, **{"general.architecture": "unheard_of"}), (), 3),
        (lambda path: None, (), 3),
        (lambda path: tiny_llama(path, n_layers=64), ("--ctx-size", "16000000"), 4),
        (tiny_llama, ("--host", "no.such.host.invalid"), 5),
        (tiny_llama, ("--max-queu", "3"), 2),
        (tiny_llama, ("--data-dir", "/dev/null/data"), 2),
    ],
    ids=["text", "truncated", "architecture", "missing", "too large", "host", "flag", "data folder"],
)
def test_a_start_that_cannot_succeed_says_why_in_one_sentence(
    tmp_path: Path, make: Any, arguments: tuple[str, ...], code: int
) -> None:
    model = tmp_path / "m.gguf"
    make(model)
    done = ended(tmp_path, "-m", str(model), "--port", "0", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "COLIBRI_DEBUG" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(("colibri: error: ", "colibri serve: error: "))


def test_a_template_that_never_ends_costs_only_its_own_request_and_sigint_leaves_nothing(tmp_path: Path) -> None:
    loops = ["{% for " + name + " in range(9999) %}" for name in "ijk"]
    endless = "".join(loops) + "x" + "{% endfor %}" * 3
    model = tiny_llama(tmp_path / "t.gguf", **{"tokenizer.chat_template": endless})
    with serving(tmp_path, model, "--no-auth") as hostile:
        client = hostile.client()
        began = time.monotonic()
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="t", messages=[{"role": "user", "content": "hi"}])
        assert time.monotonic() - began < 30
        assert caught.value.code == "template_error"
        assert client.completions.create(model="t", prompt="x", max_tokens=1).choices
        client.close()
        worker = hostile.get("/admin/state", "admin")["worker"]["pid"]
        hostile.process.send_signal(signal.SIGINT)
        assert hostile.process.wait(timeout=30) == 130
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_sigterm_lets_an_answer_end_and_refuses_new_ones(tmp_path: Path) -> None:
    with serving(tmp_path, tiny_llama(tmp_path / "t.gguf")) as stopping:
        client = stopping.client()
        stream = client.completions.create(model="t", prompt="x", max_tokens=400, stream=True, temperature=1.5)
        pieces = iter(stream)
        next(pieces)
        worker = stopping.get("/admin/state", "admin")["worker"]["pid"]
        stopping.process.send_signal(signal.SIGTERM)
        reasons = [piece.choices[0].finish_reason for piece in pieces]
        assert reasons[-1] in ("stop", "length")
        assert stopping.process.wait(timeout=30) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        client.close()


def test_neither_clients_that_dawdle_nor_busy_threads_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, tiny_llama(tmp_path / "t.gguf")) as stopping, contextlib.ExitStack() as stack:
        host, port = stopping.base.removeprefix("http://").split(":")
        head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {stopping.keys['admin']}\r\n"
        text = json.dumps({"content": "ab" * 3_000_000}).encode()
        for start, rest in (
            ("GET /admin/events", b"\r\n"),
            ("POST /admin/swap", b"Content-Length: 100\r\n\r\n{"),
            ("POST /tokenize", b"Content-Length: %d\r\n\r\n" % len(text) + text),
        ):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(f"{start} {head}".encode() + rest)
        time.sleep(1)
        stopping.process.send_signal(signal.SIGTERM)
        assert stopping.process.wait(timeout=8) == 0


def test_a_killed_worker_is_replaced_and_the_next_request_is_answered(server: Server) -> None:
    client = server.client()
    worker = server.get("/admin/state", "admin")["worker"]["pid"]
    stream = client.completions.create(model="tiny", prompt="x", n=8, stream=True, extra_body={"ignore_eos": True})
    pieces = iter(stream)
    next(pieces)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(openai.APIError):
        list(pieces)
    assert client.completions.create(model="tiny", prompt="x", max_tokens=1).choices
    client.close()


def test_no_free_port_is_needed_to_find_out_that_one_is_taken(tmp_path: Path) -> None:
    """The port is tried before the model is read, so the answer comes at once even for a huge file."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = ended(tmp_path, "-m", str(tiny_llama(tmp_path / "t.gguf")), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 5
