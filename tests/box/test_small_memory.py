"""A container whose memory limit is below its model: `docker compose up` serves it, and nothing is killed.

Needs Docker and the image (`./up --build`); runs only with `pytest -m box`.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.machine.host import read_machine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.text import open_text
from tests.box.conftest import Box, started
from tests.heavy import noisy_llama

pytestmark = pytest.mark.box

LIMIT = 900 << 20
PROMPT, N_TOKENS = "The bird sat on the tree. The bird", 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o755)  # pytest's folders are for one user, the container's is another
    return noisy_llama(folder / "large.gguf")


@pytest.fixture(scope="module")
def small(model: Path) -> Iterator[Box]:
    settings = {"BOX_MEMORY": str(LIMIT), "BOX_MODELS": str(model.parent), "BOX_MODEL": "/models/large.gguf"}
    with started("colibri-test-small", **settings, BOX_ALIAS="large") as box:
        yield box


def answer(box: Box) -> str:
    body = {"model": "large", "prompt": PROMPT, "temperature": 0, "max_tokens": N_TOKENS, "ignore_eos": True}
    with box.post("/v1/completions", body, timeout=600) as answered:
        return str(json.load(answered)["choices"][0]["text"])


def test_it_answers_as_an_engine_that_has_all_of_it_in_memory(small: Box, model: Path) -> None:
    limit, size = facts(small, "{{.HostConfig.Memory}}"), model.stat().st_size
    assert int(limit) == LIMIT < size
    got = answer(small)
    text = open_text(read_gguf(model))
    engine = load_engine(model, EngineOptions(2048, 2, 2, load_mode="resident", spec_type="none"), read_machine())
    seq = engine.open(text.encode(PROMPT, add_special=True, parse_special=False), Sampling(temperature=0.0), N_TOKENS)
    ids: list[int] = []
    while seq.finish is None:
        token = engine.step(seq).token
        ids += [] if token is None else [token]
    engine.shutdown()
    assert got == text.decode(ids) and len(set(ids)) > 3


def test_it_says_what_stays_in_memory_and_keeps_to_its_budget(small: Box, model: Path) -> None:
    answer(small)
    found = small.admin("/admin/memory")
    weights = found["weights"]
    assert found["load_mode"] == "stream" and found["budget_bytes"] <= LIMIT
    assert 0.2 * LIMIT < weights["pinned_bytes"] < LIMIT and weights["streamed_bytes"] > 0.2 * LIMIT
    held = sum(found["processes"][name]["anon_bytes"] for name in ("api", "worker"))
    assert weights["pinned_bytes"] < held < LIMIT
    assert found["processes"]["worker"]["anon_bytes"] < 1.05 * found["private_bytes"]
    assert found["token"]["read_bytes"] > weights["streamed_bytes"] / 16, "guesses are right at most 15 times a pass"


def test_nothing_was_killed(small: Box) -> None:
    answer(small)
    assert small.admin("/admin/state")["worker"]["restarts"] == 0
    assert facts(small, "{{.State.OOMKilled}} {{.RestartCount}}") == "false 0"
    assert small.admin("/admin/memory")["pressure"]["oom_kill"] in (0, None)


def facts(box: Box, words: str) -> str:
    """What Docker knows of the container."""
    container = box.compose("ps", "-q", "colibri").strip()
    argv = ["docker", "inspect", "-f", words, container]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
