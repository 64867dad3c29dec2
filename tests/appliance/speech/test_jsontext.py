"""JSON that comes in pieces: valid JSON passes as it is, slips are set right, and nothing invalid ever gets out."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.speech.jsontext import JsonText

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def passed(text: str, size: int = 1) -> tuple[str, str, bool]:
    """What is passed on of `text`, what stands behind the value, and whether it is whole."""
    value, out = JsonText(), ""
    for at in range(0, len(text), size):
        piece, rest = value.feed(text[at : at + size])
        out += piece
        if value.is_done:
            return out, rest + text[at + size :], True
    return out, "", False


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_valid_json_passes_unchanged_and_ends_where_it_ends(value: object, ascii_: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    assert passed(text + "</tool_call>") == (text, "</tool_call>", True)
    assert passed(text + " x", 5)[0] == text


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), st.data())
def test_whatever_a_model_writes_what_gets_out_whole_is_json(value: object, data: st.DataObject) -> None:
    """One letter is changed, left out or put in."""
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(list('{}[],:"\\ \nTFNtfnu019e.-+x\'')))
    broken = text[:at] + letter + text[at + data.draw(st.integers(0, 1)) :]
    made = JsonText()
    try:
        out = "".join(made.feed(char)[0] for char in broken if not made.is_done)
        out += made.end()
    except ValueError:
        with pytest.raises(ValueError):
            json.loads(broken)
        return
    json.loads(out)


@pytest.mark.parametrize(
    ("slip", "right"),
    [
        ('{"a": True, "b": [False, None]}', '{"a": true, "b": [false, null]}'),
        ('{"a": 1, }', '{"a": 1}'),
        ('{"a": [1, 2,]}', '{"a": [1, 2]}'),
        ('{"a": "x\ny\tz"}', '{"a": "x\\ny\\tz"}'),
        ('{"a": "it\\\'s"}', '{"a": "it\'s"}'),
        ('{"a": "\\d+"}', '{"a": "\\\\d+"}'),
    ],
)
def test_slips_without_a_doubt_are_set_right(slip: str, right: str) -> None:
    assert passed(slip) == (right, "", True)
    assert json.loads(right) is not None


@pytest.mark.parametrize(
    "text",
    ["{'a': 1}", '{"a" 1}', '{"a": }', '{"a": 1 2}', '{"a": 01}', '{"a": tru}', "{]", '{"a": "\\u12g4"}', "{,}",
     '{"a":1,,}', "[" * 100, '{"a": +1}', "}"],
)  # fmt: skip
def test_what_is_no_json_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        passed(text)


@pytest.mark.parametrize(
    ("begun", "end"), [('{"a": [1', "]}"), ('{"a": {', "}}"), ('{"a": 1,', "}"), ("{", "}"), ('{"a": tru', None),
                       ('{"a": "x', None), ('{"a":', None), ('{"a', None), ("", None)],
)  # fmt: skip
def test_only_brackets_are_closed_for_a_model_that_stopped(begun: str, end: str | None) -> None:
    value = JsonText()
    out = value.feed(begun)[0]
    if end is None:
        with pytest.raises(ValueError):
            value.end()
    else:
        assert isinstance(json.loads(out + value.end()), dict)
