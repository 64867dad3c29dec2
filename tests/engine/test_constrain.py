"""Answers that must fit: whatever tokens are drawn, the text fits; what cannot be kept to is refused with its place."""

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from engine import constrain
from engine.budget import Machine
from engine.circles import endless
from engine.constrain import Grammars, Rule, check, check_schema, choice, json_schema, lark, regex
from engine.errors import EngineFailed, InvalidParameter
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.text import Text, open_text
from tests.engine.tokenizer.test_against_llama_cpp import smollm2
from tests.tiny import tiny_llama

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)


def grammars_of(text: Text) -> Grammars:
    return Grammars(text.vocab, partial(text.encode, add_special=False, parse_special=False))


@pytest.fixture(scope="module")
def real() -> tuple[Text, Grammars]:
    text = open_text(read_gguf(smollm2()))
    return text, grammars_of(text)


def allowed(rule: Rule) -> list[int]:
    rule.fill()
    assert rule.failure is None, rule.failure
    return [int(i) for i in np.flatnonzero(np.unpackbits(rule.mask.view(np.uint8), bitorder="little"))]


def drawn(text: Text, rule: Rule, rng: random.Random, most: int = 600) -> str:
    """A text of allowed tokens, any of them, but for an end as soon as there may be one."""
    ids: list[int] = []
    while not rule.is_complete:
        ways = allowed(rule)
        assert not [i for i in ways if text.vocab.is_control(i) and i not in text.vocab.eog_ids]
        token = next((i for i in ways if i in text.vocab.eog_ids), None) or rng.choice(ways)
        rule.accept(token)
        ids.append(token)
        assert len(ids) < most, text.decode(ids)
    assert rule.failure is None
    return text.decode([i for i in ids if i not in text.vocab.eog_ids])


def some_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema that keeps texts short."""
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {"type": "string", "maxLength": rng.randint(1, 6)},
        lambda: {"type": "string", "pattern": rng.choice(["^[a-z]{2,4}$", "^(ab|cd)+x$", "^[0-9]{3}-[A-F]$"])[:60]}
        if rng.random() < 0.7 else {"type": "string", "enum": ["x", "é \"q\"", "\n"]},
        lambda: {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 900)},
        lambda: {"type": "number", "minimum": -1.5, "maximum": 2.25},
        lambda: {"enum": rng.sample([1, "a", None, True, 2.5, "b c"], k=rng.randint(1, 4))},
        lambda: {"const": rng.choice(["k", 3, False])},
        lambda: {"type": rng.choice(["boolean", "null"])},
        lambda: {"$ref": "#/$defs/short"},
    ]  # fmt: skip
    if depth < 3:
        kinds += [
            lambda: {
                "type": "array",
                "items": some_schema(rng, depth + 1),
                "minItems": rng.randint(0, 1),
                "maxItems": 2,
            },
            lambda: {"anyOf": [some_schema(rng, depth + 1), {"type": "null"}]},
        ] * 2
    if depth and rng.random() < 0.6:
        return rng.choice(kinds)()
    names = rng.sample(["a", "b", "name", "größe", "x y"], k=rng.randint(1, 4))
    inside = {name: some_schema(rng, depth + 1) if depth < 3 else {"const": 1} for name in names}
    return {
        "type": "object", "properties": inside,
        "required": rng.sample(names, k=rng.randint(0, len(names))), "additionalProperties": False,
    }  # fmt: skip


def test_200_schemas_are_kept_to_by_whatever_is_drawn(real: tuple[Text, Grammars]) -> None:
    text, grammars = real
    for seed in range(200):
        rng = random.Random(seed)
        schema = some_schema(rng) | {"$defs": {"short": {"type": "string", "maxLength": 3}}}
        assert check_schema(schema) == ("", ""), schema
        found = drawn(text, grammars.start(json_schema(schema)), rng)
        jsonschema.validate(json.loads(found), schema)


def test_50_expressions_are_kept_to(real: tuple[Text, Grammars]) -> None:
    text, grammars = real
    atoms = ["[a-c]", "[0-9]{1,3}", "(x|yz)", "[^\\n]{2}", "é?", "-", "(ab){2}", "\\.", "[A-Z][a-z]"]
    for seed in range(50):
        rng = random.Random(seed)
        pattern = "".join(rng.choices(atoms, k=rng.randint(1, 6)))
        assert re.fullmatch(pattern, drawn(text, grammars.start(regex(pattern)), rng)), pattern


def test_choices_and_grammars_are_kept_to(real: tuple[Text, Grammars]) -> None:
    text, grammars = real
    texts = ["yes", "no", "maybe not", 'é"\\', "<|im_end|>"]
    found = {drawn(text, grammars.start(choice(texts)), random.Random(seed)) for seed in range(60)}
    assert found == set(texts)
    rules = 'start: word ("," word)* "."\nword: /[a-z]{2}/'
    assert re.fullmatch(r"[a-z]{2}(,[a-z]{2})*\.", drawn(text, grammars.start(lark(rules)), random.Random(1)))


@pytest.mark.parametrize(
    ("schema", "words", "path"),
    [
        ({"type": "objekt"}, "objekt", ""),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, "uniqueItems", "properties.a.items"),
        ({"anyOf": [{"type": "null"}, {"not": {"type": "string"}}]}, "not", "anyOf.1"),
        ({"$defs": {"x": {"if": {}}}, "properties": {"a": {"$ref": "#/$defs/x"}}}, "if", "$defs.x"),
        ({"properties": {"q": {"$ref": "#/nowhere"}}}, "nowhere", "properties.q"),
        ({"properties": {"q": {"type": "string", "pattern": "(a"}}}, "unclosed group", "properties.q"),
        ({"type": "string", "format": "colour"}, "colour", ""),
        (False, "nsatisfiable", ""),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "nsatisfiable", ""),
        ({"$ref": "#"}, "circle", ""),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "circle", "$defs.a"),
        ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "circle", "properties.n"),
        (
            {"type": "object", "properties": {"a": {"type": "null"}, "b": {"anyOf": [{"type": "null"}, {"type": "array",
             "items": {"$ref": "#/properties/b/anyOf/1"}, "minItems": 1}]}}},
            "circle", "properties.b.anyOf.1.items",
        ),
        ({"properties": {"a": {"type": "number", "minimum": float("inf")}}}, "as JSON", "properties.a"),
        ({"properties": {"a": {"enum": ["\ud800"]}}}, "as JSON", "properties.a"),
        ({"x-guidance": {"lenient": True}, "type": "array", "uniqueItems": True}, "uniqueItems", ""),
        ({"x-guidance": {"coerce_one_of": True}, "oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf", ""),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused_with_its_place(schema: Any, words: str, path: str) -> None:
    wrong, found = check_schema(schema)
    assert words in wrong and "\n" not in wrong and found == path


def test_a_schema_of_too_many_levels_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    assert "recursion" in check_schema(deep)[0]


def test_a_long_chain_of_definitions_is_looked_through_in_one_go() -> None:
    chain = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}, "minItems": 1} for i in range(20_000)}
    assert not endless({"$defs": chain | {"d20000": {"type": "null"}}, "$ref": "#/$defs/d0"})
    assert len(endless({"$defs": chain | {"d20000": {"$ref": "#/$defs/d7"}}, "$ref": "#/$defs/d0"})) > 20_000


LIST = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}


@pytest.mark.parametrize("schema", [True, {}, {"properties": {"n": {"$ref": "#"}}}, {"const": "ab" * 9000}, LIST])
def test_a_schema_that_is_wide_deep_or_long_is_no_circle(schema: Any) -> None:
    assert check_schema(schema) == ("", "")


def test_wrong_grammars_are_told_in_one_line(real: tuple[Text, Grammars]) -> None:
    for grammar in (regex("(a"), lark("start: nobody"), lark(""), "{"):
        assert check(grammar) and "\n" not in check(grammar)
        with pytest.raises(InvalidParameter, match="cannot be kept to"):
            real[1].start(grammar)
    assert "are the most" in check(lark("start: " + "x" * (1 << 20)))


def test_what_goes_wrong_half_way_is_no_answer(real: tuple[Text, Grammars]) -> None:
    """A rule that has failed lets the step pass and says that nothing of it counts."""
    text, grammars = real
    rule = grammars.start(choice(["yes"]))
    rule.accept(text.encode("no", False, False)[0])
    assert isinstance(rule.failure, EngineFailed) and rule.is_complete
    rule.fill()
    assert rule.mask.all()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tiny_llama(tmp_path_factory.mktemp("m") / "t.gguf")
    made = load_engine(path, EngineOptions(n_ctx=256, threads=1, threads_batch=1, n_parallel=2), MACHINE)
    made.words = open_text(read_gguf(path))  # type: ignore[attr-defined]
    made.grammars = grammars_of(made.words)  # type: ignore[attr-defined]
    yield made
    made.shutdown()


def answer(engine: Engine, n: int = 200, **sampling: Any) -> tuple[str, str, list[Any]]:
    text: Text = engine.words  # type: ignore[attr-defined]
    seq = engine.open([5, 9, 100], Sampling(**sampling), n, text.vocab.eog_ids, n_logprobs=3)
    made = []
    while seq.finish is None:
        made.append(engine.step(seq))
    engine.close(seq)
    ids = [out.token for out in made if out.token is not None and out.token not in text.vocab.eog_ids]
    return text.decode(ids), str(seq.finish), made


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_model_of_noise_answers_in_the_form_asked_for(engine: Engine, temperature: float) -> None:
    schema = {"type": "object", "properties": {"tag": {"enum": ["bird", "flower"]}, "n": {"type": "integer",
              "minimum": 0, "maximum": 99}}, "required": ["tag", "n"], "additionalProperties": False}  # fmt: skip
    for seed in range(8):
        found, finish, _ = answer(engine, temperature=temperature, seed=seed, grammar=json_schema(schema),
                                  repeat_penalty=1.3, logit_bias={7: 50.0})  # fmt: skip
        jsonschema.validate(json.loads(found), schema)
        assert finish == "stop"


def test_a_mask_changes_no_probability_and_no_other_answer(engine: Engine) -> None:
    free = answer(engine, n=1, temperature=0.0)[2][-1]
    bound = answer(engine, n=1, temperature=0.0, grammar=choice(["the", "bird"]))[2][-1]
    assert bound.top == free.top and bound.token != free.token and bound.logprob < free.logprob
    before, _, _ = answer(engine, n=12, temperature=0.0)
    answer(engine, temperature=0.0, grammar=regex("[a-z]{3}"))
    assert answer(engine, n=12, temperature=0.0)[0] == before


def test_a_bound_answer_beside_a_free_one(engine: Engine) -> None:
    alone, _, _ = answer(engine, n=20, temperature=0.0)
    text: Text = engine.words  # type: ignore[attr-defined]
    free = engine.open([5, 9, 100], Sampling(temperature=0.0), 20, text.vocab.eog_ids)
    bound = engine.open([5, 9, 100], Sampling(temperature=0.0, grammar=choice(["the bird"])), 20, text.vocab.eog_ids)
    made: dict[Any, list[int]] = {free: [], bound: []}
    while going := [s for s in (free, bound) if s.finish is None]:
        for s, out in zip(going, engine.step_many(going), strict=True):
            made[s] += [one.token for one in (out, *out.more) if one.token is not None]
    for s in (free, bound):
        engine.close(s)
    assert text.decode([i for i in made[free] if i not in text.vocab.eog_ids]) == alone
    assert text.decode(made[bound]) == "the bird" and bound.finish == "stop"


def test_an_answer_that_is_cut_says_so(engine: Engine) -> None:
    assert answer(engine, n=2, temperature=0.0, grammar=regex("[a-z]{60}"))[1] == "length"


def test_an_engine_without_words_refuses_grammars(engine: Engine) -> None:
    kept, engine.grammars = engine.grammars, None
    with pytest.raises(InvalidParameter, match="no vocabulary"):
        engine.open([5], Sampling(grammar=constrain.choice(["a"])), 3)
    engine.grammars = kept


def test_checking_a_grammar_loads_no_kernels(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sys, engine.constrain as c; c.check_schema({}); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
