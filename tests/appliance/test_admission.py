"""Admission: rendered, counted, capped or refused before anything is queued."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from appliance.admission import Admission, Wish
from appliance.api.structured import Constrained, letters_of
from engine.errors import ContextLengthExceeded, InvalidParameter, RequestError
from engine.gguf.reader import read_gguf
from engine.sampling import Sampling
from engine.text import Text, open_text
from tests.engine.tokenizer.test_against_llama_cpp import smollm2
from tests.tiny import tiny_llama


class Plain:
    """Renders without a template's logic: the contents, one a line. The real renderer has tests of its own."""

    async def render(self, template: str, messages: list[dict[str, Any]], **_: Any) -> str:
        return "\n".join(message["content"] for message in messages)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return open_text(read_gguf(tiny_llama(tmp_path / "t.gguf")))


def admission(text: Text, **changes: Any) -> Admission:
    given = {"n_ctx": 64, "defaults": Sampling(seed=None), **changes}
    return Admission(text, Plain(), **given)


async def test_the_answer_gets_the_room_that_the_prompt_leaves(text: Text) -> None:
    door = admission(text)
    ids = await door.prompt_ids("hello")
    assert text.decode(ids) == "hello"
    [free] = door.requests(ids, Wish(model="m"), "r")
    [less] = door.requests(ids, Wish(model="m", max_tokens=3), "r")
    [more] = door.requests(ids, Wish(model="m", max_tokens=1 << 70), "r")
    assert (free.max_tokens, less.max_tokens, more.max_tokens) == (64 - len(ids), 3, 64 - len(ids))


async def test_the_operator_s_cap_counts_too(text: Text) -> None:
    door = admission(text, n_predict=5)
    limits = [door.requests([1], Wish(model="m", max_tokens=n), "r")[0].max_tokens for n in (None, 3, 9)]
    assert limits == [5, 3, 5]


async def test_a_prompt_without_room_for_one_token_is_refused_with_both_numbers(text: Text) -> None:
    door = admission(text)
    assert len(door.requests([1] * 63, Wish(model="m"), "r")) == 1
    with pytest.raises(ContextLengthExceeded, match="64") as caught:
        door.requests([1] * 64, Wish(model="m"), "r")
    assert caught.value.extra == {"n_prompt_tokens": 64, "n_ctx": 64}


async def test_a_text_that_cannot_fit_is_refused_without_tokenising_it(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = admission(text)
    monkeypatch.setattr(text, "encode", lambda *_: pytest.fail("tokenised"))
    with pytest.raises(ContextLengthExceeded, match="at least"):
        await door.prompt_ids("x" * 3_000_000)


async def test_given_ids_are_checked_and_kept(text: Text) -> None:
    door = admission(text)
    assert await door.prompt_ids([5, 6, 7]) == [5, 6, 7]
    for wrong in (-1, text.vocab.n_vocab, 1 << 40):
        with pytest.raises(InvalidParameter, match="vocabulary") as caught:
            await door.prompt_ids([5, wrong])
        assert caught.value.param == "prompt"


async def test_an_empty_prompt_is_refused(text: Text) -> None:
    with pytest.raises(InvalidParameter, match="no token"):
        admission(text).requests([], Wish(model="m"), "r")


async def test_a_model_without_a_template_names_the_other_route(tmp_path: Path) -> None:
    bare = open_text(read_gguf(tiny_llama(tmp_path / "bare.gguf", **{"tokenizer.chat_template": None})))
    with pytest.raises(RequestError, match="/v1/completions"):
        await admission(bare).chat([{"role": "user", "content": "hi"}])


async def test_named_settings_override_and_the_rest_stay_the_operator_s(text: Text) -> None:
    door = admission(text, defaults=Sampling(temperature=0.3, top_k=7))
    [request] = door.requests([1], Wish(model="m", sampling={"temperature": 0.0}), "r")
    assert (request.sampling.temperature, request.sampling.top_k) == (0.0, 7)


@pytest.mark.parametrize("token", [-1, 1 << 40])
async def test_a_bias_on_a_token_that_does_not_exist_is_refused(text: Text, token: int) -> None:
    with pytest.raises(InvalidParameter) as caught:
        admission(text).requests([1], Wish(model="m", sampling={"logit_bias": {token: 1.0}}), "r")
    assert caught.value.param == "logit_bias"


async def test_several_answers_have_names_and_seeds_of_their_own(text: Text) -> None:
    door = admission(text)
    seeded = door.requests([1], Wish(model="m", n=3, sampling={"seed": (1 << 64) - 1}), "r")
    assert [r.id for r in seeded] == ["r-0", "r-1", "r-2"]
    assert [r.sampling.seed for r in seeded] == [(1 << 64) - 1, 0, 1]
    free = door.requests([1], Wish(model="m", n=2), "r")
    assert [r.sampling.seed for r in free] == [None, None]
    assert dataclasses.replace(free[1], id="r-0") == free[0]


@pytest.mark.parametrize("name", ["messages", "tools", "bos_token"])
async def test_a_variable_cannot_stand_for_what_the_request_or_the_file_says(name: str, text: Text) -> None:
    with pytest.raises(InvalidParameter, match=name) as caught:
        await admission(text).render([{"role": "user", "content": "hi"}], extra={name: []})
    assert caught.value.param == "chat_template_kwargs"


async def test_letters_and_options_that_a_real_vocabulary_has_no_bytes_for_are_refused() -> None:
    door = admission(open_text(read_gguf(smollm2())))
    assert door.unwritable({"\U0008d193", "é", "漢", "😀"}) == ["\U0008d193"]
    with pytest.raises(InvalidParameter, match="cannot write") as caught:
        await door.options(["yes", "no \U0008d193"])
    assert caught.value.param == "options"
    assert [len(ids) > 0 for ids in await door.options(["yes", "naïve 漢😀"])] == [True, True]


def test_what_an_answer_may_have_to_hold_is_read_off_the_request_but_not_off_remarks() -> None:
    schema = {"properties": {"ñ": {"enum": ["é", 1]}}, "description": "漢", "items": [{"const": "ü", "title": "ß"}]}
    form = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    assert letters_of(Constrained.model_validate(form)) == {"ñ", "é", "ü"}
    assert letters_of(Constrained.model_validate({"guided_regex": "[a-z]ö"})) == {"ö"}
