"""Bodies: strict JSON, and refusals that hold nothing of what was sent."""

import json

import pytest

from appliance.api.body import body_cap
from appliance.api.errors import InvalidJson
from appliance.strict_json import MAX_DEPTH, MAX_PARTS, parse_object


def nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_a_plain_object_is_read() -> None:
    assert parse_object('\ufeff {"a": "é\\ud83d\\ude00", "b": [1, 2.5, null, true]} '.encode()) == {
        "a": "é😀",
        "b": [1, 2.5, None, True],
    }


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{model: x", "line 1, column 2"),
        (b"[1,2]", "array"),
        (b"null", "null"),
        (b"3", "number"),
        (b'"secret"', "string"),
        (b"{} {}", "column 4"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "finite"),
        (b'{"a": 1e999}', "finite"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a": 1, "b": 2, "a": 3}', "twice"),
        (b'{"x": {"a": 1, "a": 1}}', "twice"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": "\\ud83d"}', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b'{"a": "line\nbreak"}', "control character"),
    ],
)
def test_everything_else_is_refused_in_one_sentence(raw: bytes, words: str) -> None:
    with pytest.raises(InvalidJson, match=words) as caught:
        parse_object(raw)
    assert "secret" not in caught.value.message


def test_nesting_has_a_limit_that_no_depth_can_crash() -> None:
    assert parse_object(nested(MAX_DEPTH - 1))
    for levels in (MAX_DEPTH + 1, 5_000, MAX_PARTS - 10):
        with pytest.raises(InvalidJson, match="nested"):
            parse_object(nested(levels))


def test_a_wide_body_is_no_deep_body() -> None:
    wide = {"tokens": list(range(100_000)), "messages": [{"content": "é"}] * 1000}
    assert parse_object(json.dumps(wide).encode()) == wide


@pytest.mark.parametrize(
    "piece",
    [b"1,", b"{},", b'"",', b"[],", b'"\\"",', b"["],
    ids=["number", "object", "string", "array", "quote", "open"],
)
def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(piece: bytes) -> None:
    with pytest.raises(InvalidJson, match="commas and brackets"):
        parse_object(b'{"messages": [' + piece * 1_000_000 + b"0]}")


@pytest.mark.parametrize("piece", ["[1,{", '\\"', "\\\\"])
def test_a_long_text_is_one_part_whatever_is_in_it(piece: str) -> None:
    content = piece * 1_000_000
    assert parse_object(f'{{"content": "{content}"}}'.encode())["content"] == json.loads(f'"{content}"')
    with pytest.raises(InvalidJson, match="Unterminated"):
        parse_object(f'{{"content": "{content}'.encode())


def test_the_cap_grows_with_the_context() -> None:
    assert body_cap(512) == 8 * 1024 * 1024
    assert body_cap(1 << 20) == 64 * 1024 * 1024
