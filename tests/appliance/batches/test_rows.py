"""Input files: every bad line is told by its number, good ones are found again, and what is no file is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.batches.order import ordered
from appliance.batches.rows import BadInput, Caps, read_row, scan
from engine.errors import InvalidParameter

CHAT = "/v1/chat/completions"


def row(custom_id: object, text: str = "Say hi.", **body: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def file_of(folder: Path, *lines: object) -> Path:
    path = folder / "in.jsonl"
    path.write_bytes(b"".join((ln if isinstance(ln, bytes) else json.dumps(ln).encode()) + b"\n" for ln in lines))
    return path


@pytest.mark.parametrize(
    ("line", "code", "param", "custom_id"),
    [
        (b'{"custom_id": "cut", "method": "POST", "url"', "invalid_json_line", None, None),
        (b"[1,2,3]", "invalid_json_line", None, None),
        (b"null", "invalid_json_line", None, None),
        (b'{"custom_id":"b\xff"}', "invalid_json_line", None, None),
        (b'{"custom_id":"x","custom_id":"y"}', "invalid_json_line", None, "y"),
        (b"[" * 100_000, "invalid_json_line", None, None),
        ({**row("x"), "body": "x"}, "invalid_type", "body", "x"),
        ({k: v for k, v in row("x").items() if k != "body"}, "missing_required_parameter", "body", "x"),
        ({k: v for k, v in row("x").items() if k != "custom_id"}, "missing_required_parameter", "custom_id", None),
        (row(7), "invalid_type", "custom_id", None),
        (row(""), "invalid_type", "custom_id", None),
        (row("i" * 513), "invalid_value", "custom_id", None),
        (row("x", stream=True), "unsupported_value", "body.stream", "x"),
        ({**row("x"), "method": "GET"}, "invalid_method", "method", "x"),
        ({**row("x"), "url": "/v1/nothing"}, "invalid_url", "url", "x"),
        ({**row("x"), "url": "/v1/completions"}, "mismatched_endpoint", "url", "x"),
        ({**row("x"), "note": 1}, "unsupported_parameter", "note", "x"),
        (row("first"), "duplicate_custom_id", "custom_id", "first"),
        (row("x", text="word " * 3000), "line_too_long", None, None),
    ],
)
def test_a_bad_line_is_told_by_its_number_and_the_others_are_read(
    line: object, code: str, param: str | None, custom_id: str | None, tmp_path: Path
) -> None:
    path = file_of(tmp_path, row("first"), b"", line, row("last"))
    found = scan(path, CHAT, Caps(line_bytes=10_000 if code == "line_too_long" else 1 << 20))
    assert [ref.custom_id for ref in found.refs] == ["first", "last"] and found.n_lines == 3
    (problem,) = found.problems
    assert (problem.line, problem.code, problem.param, problem.custom_id) == (3, code, param, custom_id)
    assert problem.document()["line"] == 3 and problem.message


def test_a_check_of_the_bodies_refuses_a_line_before_anything_is_computed(tmp_path: Path) -> None:
    def check(url: str, body: dict[str, Any]) -> None:
        if body.get("temperature") == "hot":
            raise InvalidParameter("temperature is a string", param="temperature")

    found = scan(file_of(tmp_path, row("a"), row("b", temperature="hot")), check=check)
    assert [(p.line, p.param, p.custom_id) for p in found.problems] == [(2, "body.temperature", "b")]


def test_a_file_without_a_good_row_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no rows") as empty:
        scan(file_of(tmp_path))
    assert empty.value.code == "empty_file"
    with pytest.raises(BadInput, match=r"none of the file's 2 lines .* line 1") as bad:
        scan(file_of(tmp_path, [1], "x"))
    assert [problem.line for problem in bad.value.problems] == [1, 2]


def test_more_rows_or_bytes_than_the_caps_are_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path, *(row(f"r{i}") for i in range(5)))
    with pytest.raises(BadInput, match="more than the 4 rows"):
        scan(path, caps=Caps(lines=4))
    with pytest.raises(BadInput, match="at most 100 are taken"):
        scan(path, caps=Caps(bytes=100))


def test_rows_are_found_again_and_an_edited_file_is_noticed(tmp_path: Path) -> None:
    rows = [row(f"r{i}", f"text {i} é") for i in range(4)]
    path = file_of(tmp_path, *rows)
    found = scan(path)
    with path.open("rb") as file:
        again = [read_row(file.fileno(), ref) for ref in found.refs]
    assert [one.body for one in again] == [one["body"] for one in rows]
    assert [one.line for one in again] == [1, 2, 3, 4]
    path.write_bytes(path.read_bytes().replace(b"text 2", b"text 9"))
    with path.open("rb") as file, pytest.raises(BadInput, match="line 3 of the input has changed"):
        [read_row(file.fileno(), ref) for ref in found.refs]


def test_rows_of_one_task_come_together_short_ones_first_and_equal_ones_are_one(tmp_path: Path) -> None:
    def task(name: str, custom_id: str, text: str, **more: Any) -> dict[str, Any]:
        made = row(custom_id, text, **more)
        made["body"]["messages"].insert(0, {"role": "system", "content": name})
        return made

    path = file_of(
        tmp_path,
        task("A", "a1", "long " * 9),
        task("B", "b1", "x"),
        task("A", "a2", "mid " * 5),
        task("A", "a3", "long " * 9),
        task("B", "b2", "x", temperature=0.7),
        task("B", "b3", "x", temperature=0.7),
        task("A", "a4", "s"),
    )
    groups = [[ref.custom_id for ref in group.refs] for group in ordered(scan(path).refs)]
    assert groups == [["a4"], ["a2"], ["a1", "a3"], ["b1"], ["b2"], ["b3"]]


def test_the_order_of_a_bodys_keys_makes_no_new_question(tmp_path: Path) -> None:
    one = row("a")
    other = {**row("b"), "body": dict(reversed(list(one["body"].items())))}
    (group,) = ordered(scan(file_of(tmp_path, one, other)).refs)
    assert [ref.custom_id for ref in group.refs] == ["a", "b"]
