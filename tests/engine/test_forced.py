"""What a grammar forces is taken without a step for each token: same ids, same bits as when every token is computed."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from engine.budget import Machine
from engine.constrain import Grammars, choice, json_schema, lark, regex
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.text import open_text
from tests.tiny import tiny_llama

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
PROMPT = [5, 9, 100, 7, 33]
LABEL = json_schema({
    "type": "object", "required": ["the label", "is_sure"], "additionalProperties": False,
    "properties": {"the label": {"enum": ["bird", "flower", "river"]}, "is_sure": {"type": "boolean"}},
})  # fmt: skip
LONG = regex("[xy](there is one){4}[0-9]!{40}")
ALL = regex("(the quick brown bird ){3}")
FREE = regex("[a-z]{12}")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tiny_llama(tmp_path_factory.mktemp("m") / "t.gguf")
    made = []
    for ubatch in (512, 16):
        options = EngineOptions(256, n_parallel=4, ubatch_size=ubatch, cache_prompt=True)
        engine = load_engine(path, options, MACHINE)
        text = open_text(read_gguf(path))
        engine.grammars = Grammars(text.vocab, partial(text.encode, add_special=False, parse_special=False))
        engine.text, engine.eog = text, text.vocab.eog_ids  # type: ignore[attr-defined]
        made.append(engine)
    yield made
    for engine in made:
        engine.shutdown()


def answers(engine: Engine, wishes: list[dict[str, Any]], n: int = 120, n_logprobs: int = 0) -> list[tuple[Any, ...]]:
    """(ids, finish, steps that made something) of texts that step together."""
    seqs = [
        engine.open([*PROMPT, i + 40], Sampling(**wish), n, engine.eog, n_logprobs)  # type: ignore[attr-defined]
        for i, wish in enumerate(wishes)
    ]
    made: list[list[int]] = [[] for _ in seqs]
    steps = [0] * len(seqs)
    while going := [s for s in seqs if s.finish is None]:
        for s, out in zip(going, engine.step_many(going), strict=True):
            here = seqs.index(s)
            new = [one.token for one in (out, *out.more) if one.token is not None]
            assert out.finish == s.finish or not new
            made[here] += new
            steps[here] += bool(new)
    for s, ids in zip(seqs, made, strict=True):
        assert s.failure is None and list(s.made) == ids
        engine.close(s)
    return [(ids, s.finish, n_steps) for ids, s, n_steps in zip(made, seqs, steps, strict=True)]


@pytest.mark.parametrize("grammar", [LABEL, LONG, ALL, FREE, choice(["the bird"]), lark('start: "a"* "bird sings"')])
@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_the_same_ids_as_when_every_token_is_computed(engines: list[Engine], grammar: str, temperature: float) -> None:
    wish = {"grammar": grammar, "temperature": temperature, "seed": 4, "repeat_penalty": 1.2}
    slow = answers(engines[0], [wish], n_logprobs=1)[0]
    for engine in engines:
        fast = answers(engine, [wish])[0]
        assert fast[:2] == slow[:2]
        assert fast[2] < slow[2] or grammar == FREE or len(slow[0]) < 3
    assert slow[2] == len(slow[0])


def test_few_steps_are_left(engines: list[Engine]) -> None:
    ids, finish, steps = answers(engines[0], [{"grammar": LABEL, "temperature": 0.0}])[0]
    assert finish == "stop" and steps * 3 < len(ids)


def test_in_company_as_alone(engines: list[Engine]) -> None:
    wishes = [
        {"grammar": LABEL, "temperature": 0.0}, {"temperature": 0.0}, {"grammar": LONG, "temperature": 1.5, "seed": 2},
        {"grammar": ALL, "temperature": 0.0},
    ]  # fmt: skip
    for engine in engines:
        together = answers(engine, wishes, 60)
        for i, wish in enumerate(wishes):
            nobody = [{"temperature": 0.0}] * i  # the prompt's last id is the place's
            assert answers(engine, [*nobody, wish], 60)[i][:2] == together[i][:2]


@pytest.mark.parametrize("engine_at", [0, 1])
def test_the_logits_behind_it_are_those_of_reading_the_text(engines: list[Engine], engine_at: int) -> None:
    engine = engines[engine_at]
    seq = engine.open(PROMPT, Sampling(grammar=LABEL, temperature=1.0, seed=1), 120, engine.eog)  # type: ignore[attr-defined]
    seen, before = 0, len(seq.made)
    while seq.finish is None:
        out = engine.step(seq)
        if out.token is not None:
            assert seq.n_logits == 1
            bound, free = engine.logits_of(seq)[0], engine.last_logits([*PROMPT, *seq.made[:before]])
            may = bound > -1e38  # the mask is laid over them in place
            assert may.any() and np.array_equal(bound[may], free[may])
            seen, before = seen + 1, len(seq.made)
    engine.close(seq)
    assert seen >= 2


def test_a_limit_inside_it_cuts_it_there(engines: list[Engine]) -> None:
    whole = answers(engines[0], [{"grammar": ALL, "temperature": 0.0}])[0]
    assert whole[1] == "stop" and whole[2] == 1
    for n in range(1, len(whole[0])):
        ids, finish, _ = answers(engines[0], [{"grammar": ALL, "temperature": 0.0}], n)[0]
        assert (ids, finish) == (whole[0][:n], "length")
