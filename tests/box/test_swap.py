"""Profiles changed from outside by plain HTTP while the container serves: what the engine says, what it accepts.

Needs Docker and the image (`./up --build`); runs only with `pytest -m box`.
"""

import json
import subprocess
import threading
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from scripts.house import ROOT
from tests.box.conftest import Box

pytestmark = pytest.mark.box
SWAP_S = 120
LONG = "The heron stands in the reeds and waits for the frog to move. " * 170
"""About 2400 tokens: over quick-verify's 2048, far below long-doc's 16384."""


def curl(box: Box, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One call of /admin or PUT /api by curl, with the key that an administrator reads in the volume."""
    lines = (line.split() for line in box.inside("cat", "/data/keys").splitlines())
    key = next(words[1] for words in lines if words[0] == "admin")
    argv = ["curl", "-sS", "-X", method, "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {key}", box.url + path]
    if body is not None:
        argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    text, _, code = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return int(code), json.loads(text) if text else None


def state(box: Box) -> Any:
    return curl(box, "GET", "/admin/state")[1]


def swapped(box: Box, name: str) -> Any:
    """Ask for a profile, wait until the swap has ended, and give its document."""
    code, begun = curl(box, "PUT", "/api/profiles/active", {"name": name})
    assert code == 202, begun
    for _ in range(SWAP_S * 5):
        found = curl(box, "GET", f"/admin/swap/{begun['id']}")[1]
        if found["state"] != "running":
            return found
        threading.Event().wait(0.2)
    raise AssertionError(f"the swap did not end: {found}")


def read(box: Box, text: str) -> Any:
    """A completion of one token: its answer, or the error."""
    try:
        with box.post("/v1/completions", {"model": "smollm2", "prompt": text, "max_tokens": 1}) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def asked_for(name: str) -> dict[str, Any]:
    """What the profile's own file says, under the names that the worker reports."""
    values = yaml.safe_load((ROOT / "profiles" / f"{name}.yaml").read_text())
    names = {"n_ctx": "ctx_size", "type_k": "cache_type_k", "type_v": "cache_type_v", "batch_size": "batch_size",
             "ubatch_size": "ubatch_size"}  # fmt: skip
    return {fact: values[key] for fact, key in names.items() if key in values}


@pytest.fixture
def quick(box: Box) -> Iterator[Box]:
    """The box with quick-verify in force, before and after."""
    for _ in range(2):
        if (state(box)["profile"] or {}).get("name") != "quick-verify":
            assert swapped(box, "quick-verify")["state"] == "ready"
        if _ == 0:
            yield box


def test_profiles_change_and_the_engine_is_what_their_files_say(quick: Box) -> None:
    """quick-verify, long-doc, fallback: new processes each time, the old ones gone, with figures out of the YAML."""
    box, pids = quick, [quick.worker()]
    assert read(box, LONG)["error"]["code"] == "context_length_exceeded"
    for name in ("long-doc", "fallback"):
        assert swapped(box, name)["state"] == "ready"
        worker, wanted = state(box)["worker"], asked_for(name)
        assert len(wanted) >= 3
        assert {fact: worker[fact] for fact in wanted} == wanted
        pids.append(box.worker())
        assert worker["pid"] == pids[-1] and box.inside("sh", "-c", f"kill -0 {pids[-2]}; echo $?").strip() == "1"
        assert len(read(box, LONG)["choices"]) == 1, "the prompt that quick-verify refused"
    assert len(set(pids)) == 3


def test_an_answer_under_way_ends_whole_and_the_next_one_waits(quick: Box) -> None:
    box = quick
    body = {"model": "smollm2", "stream": True, "temperature": 0, "max_tokens": 150, "ignore_eos": True,
            "messages": [{"role": "user", "content": "Count from one to a hundred."}]}  # fmt: skip
    ends: list[Any] = []
    swapper = threading.Thread(target=lambda: ends.append(swapped(box, "long-doc")))
    answers: list[str] = []
    late = threading.Thread(target=lambda: answers.append(box.ask("What is the capital of France?")))
    lines: list[str] = []
    with box.post("/v1/chat/completions", body) as stream:
        for raw in stream:
            if raw.startswith(b"data:"):
                lines.append(raw[5:].decode().strip())
            if len(lines) == 3 and not swapper.ident:
                swapper.start()
                late.start()
    swapper.join()
    late.join()
    assert lines[-1] == "[DONE]" and not any('"error"' in line for line in lines)
    assert sum('"content"' in line for line in lines) >= 50
    assert ends[0]["state"] == "ready" and "Paris" in answers[0]


def test_a_restart_of_the_container_serves_the_profile_that_served_last(quick: Box) -> None:
    box = quick
    assert swapped(box, "long-doc")["state"] == "ready"
    box.compose("restart", "-t", "20", "colibri")
    box.find()
    assert state(box)["profile"]["name"] == "long-doc" and state(box)["worker"]["n_ctx"] == 16384


def test_a_profile_that_cannot_start_leaves_the_old_one_serving(quick: Box) -> None:
    """A model that is not there: refused before anything stops, and the worker is the same one."""
    box, before = quick, quick.worker()
    code, made = curl(box, "PUT", "/admin/profiles/broken", {"text": "name: broken\nmodel: not-here.gguf\n"})
    assert code == 200, made
    code, answer = curl(box, "PUT", "/api/profiles/active", {"name": "broken"})
    assert code >= 400 and "not-here.gguf" in answer["error"]["message"]
    assert box.worker() == before and "Paris" in box.ask("What is the capital of France?")


def test_the_state_is_told_as_text_inside(box: Box) -> None:
    assert box.inside("colibri", "status").startswith("state      [READY]")
