"""Random schemas and expressions through an engine of noise: every answer fits, what cannot be kept to is refused."""


import pytest

from benchmarks.schemas import Drawn, fits, opened, run
from tests.tiny import tiny_llama


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return opened(tiny_llama(tmp_path_factory.mktemp("m") / "tiny.gguf", n_ctx=2048))


def test_200_schemas_50_expressions_and_100_refusals(drawn: Drawn) -> None:
    assert run(drawn, 200, 50) == []
    assert drawn.n_tokens > 10_000


def test_the_judge_sees_an_answer_that_does_not_fit(drawn: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "answer", lambda grammar, seed: '{"never": "asked for"}')
    monkeypatch.setattr(drawn, "failures", [])
    fits(drawn, 3)
    assert len(drawn.failures) == 1 and "ValidationError" in drawn.failures[0]
