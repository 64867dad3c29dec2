"""Tables and reviews without an engine: every wrong one is told by its line, right ones keep their cells."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from appliance.batches import review
from appliance.batches.golden_file import Golden, Known
from appliance.batches.rows import BadInput, Caps, Row, scan
from appliance.batches.table import Table, Tagging, corrections, labels_of, relabel
from appliance.batches.verdict import Verdict, verdicts
from engine.errors import UsageError


def table(folder: Path, raw: bytes | str, name: str = "in.csv", caps: Caps | None = None) -> Table:
    path = folder / name
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return Table.read(path, caps)


@pytest.mark.parametrize(
    ("raw", "name", "said"),
    [
        (b"", "a.csv", "has no heading"),
        (b"text\n", "a.csv", "a heading and no rows"),
        (b"text,id\nx,1\ny\n", "a.csv", "line 3 of a.csv has 1 cells and the heading 2"),
        (b"text,text\nx,1\n", "a.csv", "the column 'text' of a.csv stands twice"),
        (b"text\nx\n\xff\n", "a.csv", "line 3 of a.csv is not UTF-8"),
        (b'text\n"open\n', "a.csv", "is no line of a table"),
        (b'text\n"a"b\n', "a.csv", "line 2 of a.csv is no line of a table"),
        (b"text\n1\n2\n3\n4\n", "a.csv", "more than 3 rows"),
        (b"text\n" + b"x" * 2000, "a.csv", "more than 1,000 bytes"),
        (b"," * 1000 + b"\n", "a.csv", "more than 1,000 bytes"),
    ],
)
def test_what_is_no_table_is_told_by_its_line(tmp_path: Path, raw: bytes, name: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        table(tmp_path, raw, name, Caps(lines=3, bytes=1000))
    assert said in caught.value.message and caught.value.exit_code == 3


@pytest.mark.parametrize(("name", "mark"), [("in.csv", ","), ("in.csv", ";"), ("in.tsv", "\t")])
def test_every_separator_that_spreadsheets_write_is_read(tmp_path: Path, name: str, mark: str) -> None:
    found = table(tmp_path, "﻿" + f'a{mark}"b c"\r\n1{mark}"x{mark} ""y""\nz"\r\n\r\n', name)
    assert found == Table(("a", "b c"), (("1", f'x{mark} "y"\nz'),), mark)


@pytest.mark.parametrize(
    ("given", "said"),
    [("a", "1 labels are given"), ("a,b,a", "'a' stands twice"), ("a," + "b" * 201, "201 characters"),
     (",".join(map(str, range(65))), "65 labels"), ("@none.txt", "cannot be read")],
)  # fmt: skip
def test_labels_that_cannot_be_used_are_told(given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        labels_of(given)


def test_labels_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("spam\n\n not, spam \n")
    assert labels_of(f"@{tmp_path / 'labels.txt'}") == ("spam", "not, spam")


def tagging(folder: Path) -> Tagging:
    found = table(folder, "id,label,text\n1,old,a\n2,old,b\n3,old,\n4,old,d\n")
    return Tagging(found, "text", "id", ("x", "y"), "Which?")


def answer(name: str, content: str, **body: Any) -> dict[str, Any]:
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    return {"custom_id": name, "response": {"status_code": 200, "body": {"choices": [choice], **body}}, "error": None}


def lines(path: Path, *found: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in found))


def test_a_table_becomes_rows_and_answers_become_columns(tmp_path: Path) -> None:
    work, out = tagging(tmp_path), tmp_path / "out.csv"
    rows, answers, errors = work.beside(out)
    work.write_rows(rows)
    assert [ref.custom_id for ref in scan(rows).refs] == ["1", "2", "4"], "no row without text"
    sure = {"label": {"probability": 0.75, "margin": 0.5, "runner_up": "y"}}
    lines(answers, answer("1", '{"label":"x"}', colibri={"confidence": sure}), answer("2", '{"label":"else"}'))
    lines(errors, {"custom_id": "4", "response": None, "error": {"message": "it broke", "line": 3}})
    work.finish(out, answers, errors)
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [one["label"] for one in found] == ["old"] * 4, "a column of the table keeps its name"
    assert [one["colibri_label"] for one in found] == ["x", "", "", ""]
    assert (found[0]["confidence"], found[0]["margin"], found[0]["runner_up"]) == ("0.750000", "0.500000", "y")
    assert [one["error"] for one in found] == ["", "the answer is no label", "the text is empty", "it broke"]
    lines(corrections(out), {"custom_id": "2", "label": "y"})
    relabel(out, {"2": "y"})
    once = out.read_bytes()
    work.finish(out, answers, errors)
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert (found[1]["colibri_label"], found[1]["reviewed"]) == ("y", "yes")
    assert once.splitlines()[2].startswith(b"2,old,b,y,")


def test_names_that_are_not_unique_are_told(tmp_path: Path) -> None:
    for cells, said in (("1,a\n1,b\n", "row 2: its name in the column 'id' stands twice"), (",a\n", "is empty")):
        work = Tagging(table(tmp_path, f"id,text\n{cells}"), "text", "id", ("x", "y"), "Which?")
        with pytest.raises(BadInput, match=said):
            work.write_rows(tmp_path / "rows.jsonl")
    with pytest.raises(UsageError, match="no column 'body'; it has id, text"):
        Tagging(table(tmp_path, "id,text\n1,a\n"), "body", None, ("x", "y"), "?").write_rows(tmp_path / "rows.jsonl")


def test_the_least_certain_come_first_and_unknown_ones_before_them(tmp_path: Path) -> None:
    rows = {n: Row(i, n, "", {"messages": [{"content": f"text {n}"}]}) for i, n in enumerate("abcd")}
    found = [answer(n, '{"f":"v"}', colibri={"confidence": {"f": p}}) for n, p in (("a", 0.9), ("b", 0.4), ("c", 0.6))]
    found.append(answer("d", '{"f":"v"}'))
    path = tmp_path / "r.csv"
    assert review.write(path, rows, found, 1.0) == 4 and review.write(path, rows, found, 0.7) == 3
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [(one["custom_id"], one["confidence"]) for one in read] == [("d", ""), ("b", "0.400000"), ("c", "0.600000")]
    assert read[0]["reason"] == "confidence not known" and read[1]["text"] == "text b"


@pytest.mark.parametrize(
    ("line", "said"),
    [("zzz,f,2", "no answered row is named 'zzz'"), ("a,g,2", "has no field 'g'; it has 'f', 'b', 'n'"),
     ("a,b,maybe", "'maybe' is none of the values of 'b': true, false"), ("a,n,two", "is no JSON value")],
)  # fmt: skip
def test_corrections_that_fit_no_answer_are_told_by_their_line(tmp_path: Path, line: str, said: str) -> None:
    schema = {"properties": {"f": {"enum": ["1", "2"]}, "b": {"type": "boolean"}, "n": {"type": "integer"}}}
    rows = {"a": Row(1, "a", "", {"response_format": {"json_schema": {"schema": schema}}})}
    answers = {"a": answer("a", '{"f":"1","b":true,"n":3}')}
    path = tmp_path / "r.csv"
    path.write_text(f"custom_id,field,corrected\na,f,\na,b,false\na,n,4\n{line}\n")
    with pytest.raises(BadInput, match="line 5: ") as caught:
        review.read(path, rows, answers)
    assert said in caught.value.message
    path.write_text("custom_id;field;corrected\na;f;\na;b;false\na;n;4\n")
    looked = review.read(path, rows, answers)
    assert [(one.field, one.value) for one in looked] == [("b", False), ("n", 4)]
    made = review.applied(answers["a"], {one.field: one.value for one in looked})
    assert json.loads(made["response"]["body"]["choices"][0]["message"]["content"]) == {"f": "1", "b": False, "n": 4}
    path.write_text("a,b\n")
    with pytest.raises(BadInput, match="no column 'custom_id'"):
        review.read(path, rows, answers)


def test_fields_inside_fields_are_reviewed_by_their_path() -> None:
    confidence = {"a.b": {"probability": 0.7, "margin": 0.4, "runner_up": "y"}, "c": 0.9}
    record = answer("r", '{"a":{"b":"x","n":{}},"c":true,"d.e":[1]}', colibri={"confidence": confidence})
    assert verdicts(record["response"]["body"]) == [
        Verdict("a.b", "x", 0.7, 0.4, "y"), Verdict("a.n", {}), Verdict("c", True, 0.9), Verdict("d.e", [1]),
    ]  # fmt: skip
    made = review.applied(record, {"a.b": "y", "d.e": [2]})["response"]["body"]
    assert json.loads(made["choices"][0]["message"]["content"]) == {"a": {"b": "y", "n": {}}, "c": True, "d.e": [2]}
    for expected, right in (({"a": {"b": "y"}}, True), ({"a.b": "y", "c": True}, True), ({"a": {"b": "x"}}, False)):
        assert Known("r", "", {}, expected).is_right(made) is right


def test_the_schema_of_a_field_inside_a_field_bounds_its_correction(tmp_path: Path) -> None:
    inner = {"properties": {"b": {"enum": ["x", "y"]}}}
    rows = {"r": Row(1, "r", "", {"response_format": {"json_schema": {"schema": {"properties": {"a": inner}}}}})}
    path = tmp_path / "r.csv"
    for said, wrong in (("y", False), ("z", True)):
        path.write_text(f"custom_id,field,corrected\nr,a.b,{said}\n")
        if wrong:
            with pytest.raises(BadInput, match=r"line 2: 'z' is none of the values of 'a\.b': x, y"):
                review.read(path, rows, {"r": answer("r", '{"a":{"b":"x"}}')})
        else:
            (one,) = review.read(path, rows, {"r": answer("r", '{"a":{"b":"x"}}')})
            assert (one.field, one.value) == ("a.b", "y")


def test_an_answer_is_told_field_by_field() -> None:
    body = answer("a", '{"x":"1","y":true}', colibri={"confidence": {"x": 0.5, "y": {"probability": 1}}})
    assert verdicts(body["response"]["body"]) == [Verdict("x", "1", 0.5), Verdict("y", True, 1.0)]
    assert verdicts({"choices": [{"text": " yes\n", "finish_reason": "length"}]}) == [Verdict("", "yes", is_cut=True)]
    assert verdicts({"error": {}}) == [] == verdicts({"choices": [{"message": {"content": None}}]})


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"custom_id":"a","url":"/v1/chat/completions","body":{}}', b'{"a":1}'])
def test_a_golden_set_that_is_none_is_told_by_its_line(tmp_path: Path, line: bytes) -> None:
    good = b'{"custom_id":"a","url":"/v1/chat/completions","body":{},"expected":"x"}\n'
    path = tmp_path / "golden.jsonl"
    path.write_bytes(good + line)
    with pytest.raises(BadInput, match="line 2 of the golden set"):
        Golden.read(path)
    path.write_bytes(b"\n")
    with pytest.raises(BadInput, match="has 0 rows"):
        Golden.read(path)


def test_what_is_expected_must_be_in_the_answer() -> None:
    body = answer("a", '{"x":"1","y":true}')["response"]["body"]
    for expected, right in (({"x": "1"}, True), ({"y": True, "x": "1"}, True), ({"x": "2"}, False), ({"z": 1}, False),
                            ("1", False)):  # fmt: skip
        assert Known("a", "", {}, expected).is_right(body) is right
