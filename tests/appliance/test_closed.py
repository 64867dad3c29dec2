"""Which schemas leave a few texts only, the texts themselves against jsonschema, and what scores say of fields."""

import json
import math
from typing import Any

import jsonschema
import pytest

from appliance.closed import ClosedSet, entropy, probabilities

LABEL: dict[str, Any] = {"enum": ["bird", "flöwer", "do\"g"]}


def an_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": [*properties], "additionalProperties": False,
    }  # fmt: skip


NESTED = an_object(kind=LABEL, sure={"type": "boolean"}, inner=an_object(n={"enum": [1, 2], "type": "integer"}))
BY_NAME = {**an_object(kind={"$ref": "#/$defs/Kind"}, v={"const": 1}), "$defs": {"Kind": {**LABEL, "title": "Kind"}}}


@pytest.mark.parametrize(("schema", "n"), [(an_object(label=LABEL), 3), (NESTED, 12), (BY_NAME, 3)])
def test_every_text_of_a_closed_schema_fits_it_and_there_are_no_others(schema: dict[str, Any], n: int) -> None:
    closed = ClosedSet.of(schema)
    assert closed is not None and len(set(closed.texts)) == n == len(closed.answers)
    for text in closed.texts:
        jsonschema.validate(json.loads(text), schema)
    assert not closed.weighs_end


@pytest.mark.parametrize("schema", [
    LABEL, True, {"type": "object"}, an_object(label={"type": "string"}), an_object(n={"type": "integer"}),
    {**an_object(label=LABEL), "additionalProperties": True}, {**an_object(label=LABEL), "required": []},
    {**an_object(label=LABEL), "minProperties": 1}, an_object(one={"const": 1}),
    an_object(label={"enum": [*range(65)]}),
    an_object(**{f"b{i}": {"type": "boolean"} for i in range(7)}), an_object(label={"enum": [1.5, 2.5]}),
    an_object(label={"enum": ["a", 1], "type": "string"}), an_object(label={"enum": [], "type": "string"}),
    {**an_object(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/A"}}}, an_object(a={"$ref": "#/x/y/z"}),
    an_object(label={"enum": ["a", "b"], "minLength": 2}), an_object(a={"anyOf": [LABEL, LABEL]}),
])  # fmt: skip
def test_what_may_be_something_else_is_not_closed(schema: object) -> None:
    assert ClosedSet.of(schema) is None


def test_a_field_s_probability_is_the_share_of_the_answers_that_have_its_value() -> None:
    closed = ClosedSet.of(an_object(kind={"enum": ["a", "b"]}, sure={"type": "boolean"}, fixed={"const": 3}))
    assert closed is not None and closed.answers == (("a", True, 3), ("a", False, 3), ("b", True, 3), ("b", False, 3))
    shares = [0.4, 0.1, 0.3, 0.2]
    found = closed.confidence([math.log(share) - 50 for share in shares])
    assert found["kind"] == {
        "probability": 0.5, "margin": 0.0, "runner_up": "b", "entropy": pytest.approx(math.log(2), abs=1e-6),
    }  # fmt: skip
    assert (found["sure"]["probability"], found["sure"]["margin"], found["sure"]["runner_up"]) == (0.7, 0.4, False)
    assert set(found) == {"kind", "sure"}, "what could not have been otherwise has no confidence"


def test_shares_of_far_and_impossible_scores() -> None:
    assert probabilities([-1000.0, -1000.0]) == [0.5, 0.5]
    assert probabilities([0.0, -math.inf]) == [1.0, 0.0] and entropy([1.0, 0.0]) == 0.0


def test_choices_are_texts_as_they_are_each_once() -> None:
    closed = ClosedSet.choice(["yes", "no", "yes", "not"])
    assert closed is not None and closed.texts == ("yes", "no", "not") and closed.weighs_end
    assert ClosedSet.choice(["yes"]) is None and ClosedSet.choice(["", "a"]) is None
