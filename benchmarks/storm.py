"""A hundred random swaps, aborts and kills under load, every answer judged. No request may be lost, or answered by
another model than its answer names, and never may two engines be in memory.

    python -m benchmarks.storm [--swaps 100] [--seed 1]     adds to benchmarks/results/<machine>.json

Every profile has its own alias and its own greedy answer to one question, taken before the storm; each answer in the
storm must be whole and be that of the model it names. Not here: speed.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from benchmarks.llamacpp import free_port, wait_for_health
from benchmarks.model import smollm2
from benchmarks.ours import ROOT, command
from benchmarks.record import save, stamp
from tests.tiny import tiny_llama

PATIENCE_S = 120.0
WHOLE = 100
"""A storm of fewer swaps is a look, and no figure is kept of it."""
QUESTION = "The sun rises in the east and"
TOKENS = 24
JSON = {"Content-Type": "application/json"}
PROFILES = {
    "quick": "ctx_size: 2048\nubatch_size: 256\n",
    "long": "ctx_size: 8192\nubatch_size: 128\ncache_type_k: q8_0\ncache_type_v: q8_0\n",
    "tiny": "ctx_size: 512\nmodel: {tiny}\n",
    "fallback": "ctx_size: 512\nload_mode: mmap\ncache_type_k: q8_0\n",
}
QUEUE = "queue:\n  max_queue: 64\n  queue_timeout: 600.0\n"


@dataclass
class Tally:
    """What was seen; `wrong` must stay empty."""

    answers: Counter[str] = field(default_factory=Counter)
    swaps: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    most_engines: int = 0
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class Box:
    """The service under storm."""

    port: int
    key: str
    process: Popen[bytes]

    def call(self, method: str, path: str, body: Any = None, *, admin: bool = False) -> tuple[int, Any, dict[str, str]]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            headers = JSON | ({"Authorization": f"Bearer {self.key}"} if admin else {})
            line.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = line.getresponse()
            return answer.status, json.loads(answer.read() or b"null"), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            line.close()

    def engines(self) -> list[int]:
        """Process ids of living engines: children of the service that run the worker."""
        found = []
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if b"appliance.worker" in words and state not in "ZX":
                    found.append(int(pid))
        return found

    def swap(self, to: str) -> dict[str, Any]:
        status, body, _ = self.call("POST", "/admin/swap", {"to": to}, admin=True)
        assert status in (200, 202), body
        return dict(body)

    def ended(self, swap_id: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            document = self.call("GET", f"/admin/swap/{swap_id}", admin=True)[1]
            if document["ended"]:
                return dict(document)
            time.sleep(0.02)
        raise TimeoutError(f"swap {swap_id} did not end within {PATIENCE_S:.0f} s")


def ask(box: Box, model: str | None, streamed: bool) -> tuple[int, str, str, dict[str, str]]:
    """Status, the model that answered (or the error's code), the text, the headers."""
    body = {"prompt": QUESTION, "max_tokens": TOKENS, "temperature": 0, **({"model": model} if model else {})}
    if not streamed:
        status, found, headers = box.call("POST", "/v1/completions", body)
        if status != 200:
            return status, found["error"]["code"], "", headers
        return status, found["model"], found["choices"][0]["text"], headers
    line = http.client.HTTPConnection("127.0.0.1", box.port, timeout=PATIENCE_S)
    try:
        line.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), JSON)
        answer = line.getresponse()
        headers = {k.lower(): v for k, v in answer.getheaders()}
        raw = answer.read().decode()
    finally:
        line.close()
    if answer.status != 200:
        return answer.status, json.loads(raw)["error"]["code"], "", headers
    events = [part.removeprefix("data: ") for part in raw.split("\n\n") if part.startswith("data: ")]
    found = [json.loads(event) for event in events if event != "[DONE]"]
    if (broken := next((event for event in found if "error" in event), None)) is not None:
        return 599, broken["error"]["code"], "", {}
    if events[-1] != "[DONE]" or len({event["model"] for event in found}) != 1:
        return 598, "a stream without an end, or of two models", "", {}
    return 200, found[0]["model"], "".join(event["choices"][0]["text"] for event in found if event["choices"]), headers


def client(box: Box, tally: Tally, expected: dict[str, str], seed: int) -> None:
    """Ask without end; every answer is judged. One in ten leaves in the middle."""
    dice = random.Random(seed)
    while not tally.stop.is_set():
        model, streamed = dice.choice([None, None, *PROFILES]), dice.random() < 0.5
        if dice.random() < 0.1:
            leave(box, dice)
            tally.answers["left by the client"] += 1
            continue
        try:
            status, who, text, headers = ask(box, model, streamed)
        except Exception as error:
            tally.wrong.append(f"lost: {type(error).__name__} {error}")
            continue
        if status == 200:
            tally.answers[f"answered by {who}"] += 1
            if text != expected[who]:
                tally.wrong.append(f"{who} should have said {expected[who]!r}, it said {text!r}")
            if model not in (None, who):
                tally.wrong.append(f"{model} was asked, {who} answered")
            continue
        tally.answers[f"{status} {who}"] += 1
        # 599 stands for an error event: the headers of a stream that waited for seconds have left with 200.
        allowed = (status in (404, 599) and who == "model_not_found" and model) or (
            status in (429, 503) and "retry-after" in headers)  # fmt: skip
        # An engine that was killed in the middle of an answer cannot finish it; the answer says so.
        if not (allowed or (status in (500, 599) and who == "engine_failed")):
            tally.wrong.append(f"asked for {model}: {status} {who}")
        if status in (429, 503):
            time.sleep(0.1)


def leave(box: Box, dice: random.Random) -> None:
    with contextlib.suppress(OSError):
        line = http.client.HTTPConnection("127.0.0.1", box.port, timeout=PATIENCE_S)
        body = json.dumps({"prompt": QUESTION, "max_tokens": 200, "stream": True})
        line.request("POST", "/v1/completions", body, JSON)
        time.sleep(dice.random() * 0.5)
        line.close()


def watch(box: Box, tally: Tally) -> None:
    """Counts engines, every few milliseconds."""
    while not tally.stop.is_set():
        with contextlib.suppress(OSError):
            n = len(box.engines())
            tally.most_engines = max(tally.most_engines, n)
            if n > 1:
                tally.wrong.append(f"{n} engines at once")
        time.sleep(0.003)


def storm(box: Box, tally: Tally, n: int, dice: random.Random) -> None:
    """The swaps: a third is left alone, a third aborted, a third has its engine killed, at a random moment."""
    for i in range(n):
        document = box.swap(dice.choice(list(PROFILES)))
        what = dice.choice(["alone", "abort", "kill"])
        time.sleep(dice.random() * 1.5)
        if what == "abort":
            box.call("POST", f"/admin/swap/{document['id']}/abort", admin=True)
        elif what == "kill":
            for pid in box.engines():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        ended = box.ended(document["id"])
        tally.swaps[f"{what}: {ended['state']}"] += 1
        if ended["state"] == "crashed" or ended["held"]["lost"]:
            tally.wrong.append(f"swap {document['id']} ended as {ended['text']}")
        sys.stderr.write(f"\r{i + 1}/{n} swaps, {tally.answers.total()} requests, {len(tally.wrong)} wrong ")
        sys.stderr.flush()
        time.sleep(dice.random())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.storm", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="colibri-storm-") as name:
        folder = Path(name)
        (folder / "profiles").mkdir()
        tiny = tiny_llama(folder / "tiny.gguf")
        for profile, text in PROFILES.items():
            lines = f"name: {profile}\nalias: {profile}\n{text.format(tiny=tiny)}{QUEUE}"
            (folder / "profiles" / f"{profile}.yaml").write_text(lines)
        port = free_port()
        words = ("--default-model", str(smollm2()), "--profile", "quick", "--port", str(port), "--no-auth")
        with (folder / "log").open("wb") as log:
            process = Popen(command("serve", *words, "--data-dir", name), cwd=ROOT, stdout=log, stderr=log)
        try:
            wait_for_health(f"http://127.0.0.1:{port}", process)
            keys = dict(line.split()[:2] for line in (folder / "keys").read_text().splitlines() if line[0] != "#")
            return run(Box(port, keys["admin"], process), args.swaps, args.clients, args.seed)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def run(box: Box, n: int, n_clients: int, seed: int) -> int:
    expected = {}
    for profile in PROFILES:
        ended = box.ended(box.swap(profile)["id"])
        assert ended["state"] in ("ready", "unchanged"), ended["text"]
        expected[profile] = ask(box, profile, False)[2]
    tally = Tally()
    threads = [threading.Thread(target=client, args=(box, tally, expected, seed + i)) for i in range(n_clients)]
    threads.append(threading.Thread(target=watch, args=(box, tally)))
    for thread in threads:
        thread.start()
    try:
        storm(box, tally, n, random.Random(seed))
    finally:
        tally.stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    hanging = sum(thread.is_alive() for thread in threads)
    result = {"swaps": dict(tally.swaps), "requests": dict(tally.answers), "engines_at_most": tally.most_engines,
              "hanging": hanging, "wrong": tally.wrong[:20], "n_wrong": len(tally.wrong)}  # fmt: skip
    sys.stderr.write("\n")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if n >= WHOLE:
        save("storm", stamp(smollm2()) | result)
    return 1 if tally.wrong or hanging else 0


if __name__ == "__main__":
    raise SystemExit(main())
