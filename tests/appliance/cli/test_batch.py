"""`colibri batch` with a tiny real engine: files, tables, kills, spools, golden rows. Not here: the core's cases."""

import asyncio
import contextlib
import csv
import json
import os
import pty
import signal
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.appliance.cli.shell import Done, inside, started
from tests.tiny import tiny_llama

LABELS = ("bird", "river", "flower")
SCHEMA = {
    "type": "object", "properties": {"label": {"type": "string", "enum": list(LABELS)}, "sure": {"type": "boolean"}},
    "required": ["label", "sure"], "additionalProperties": False,
}  # fmt: skip
FORM = {"type": "json_schema", "json_schema": {"name": "tag", "strict": True, "schema": SCHEMA}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", n_ctx=1024))


def row(name: str, text: str, **body: Any) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": text}], "temperature": 0, **body}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": said}


def file_of(path: Path, *rows: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return path


def records(path: Path) -> dict[str, Any]:
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len({one["custom_id"] for one in found}) == len(found), "a row was answered twice"
    return {one["custom_id"]: one for one in found}


def batch(model: str, *words: str) -> Done:
    return inside("batch", "run", "-m", model, "-t", "1", *words, "--json")


def test_a_file_is_answered_told_and_not_answered_again(model: str, tmp_path: Path) -> None:
    rows = [row(f"r{i}", f"the bird {i % 9} sings", max_tokens=4) for i in range(12)]
    rows.append(row("tagged", "a river", response_format=FORM))
    rows.append(row("refused", "hi", max_tokens=-3))
    source, out = file_of(tmp_path / "in.jsonl", *rows, "{broken"), tmp_path / "out.jsonl"
    done = batch(model, "-i", str(source), "-o", str(out))
    (job,) = json.loads(done.out)["jobs"]
    assert done.code == 1 and (job["total"], job["completed"], job["failed"], job["left"]) == (15, 13, 2, 0)
    assert "13 of 15 rows answered" in done.err and "out.jsonl.errors.jsonl" in done.err
    found = records(out)
    assert found.keys() == {f"r{i}" for i in range(12)} | {"tagged"}
    tagged = json.loads(found["tagged"]["response"]["body"]["choices"][0]["message"]["content"])
    assert tagged["label"] in LABELS and isinstance(tagged["sure"], bool)
    assert found["r9"]["response"]["body"]["colibri"]["copied_from"] == "r0", "equal rows are computed once"
    bad = [json.loads(line) for line in Path(job["errors"]).read_bytes().splitlines()]
    assert sorted((one["error"]["line"], one["custom_id"]) for one in bad) == [(14, "refused"), (15, None)]
    before = out.read_bytes()
    again = batch(model, "-i", str(source), "-o", str(out))
    (job,) = json.loads(again.out)["jobs"]
    assert job["done_before"] == 13 and out.read_bytes() == before


def test_runs_killed_again_and_again_end_as_an_undisturbed_one(model: str, tmp_path: Path) -> None:
    source = file_of(tmp_path / "in.jsonl", *(row(f"r{i}", f"the flower {i}", max_tokens=24) for i in range(80)))
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert batch(model, "-i", str(source), "-o", str(whole)).code == 0
    words = ("batch", "run", "-m", model, "-t", "1", "-i", str(source), "-o", str(out))
    kills = 0
    for goal in (1, 25, 50):
        child = started(*words)
        until = time.monotonic() + 120
        while child.poll() is None and not (out.exists() and out.read_bytes().count(b"\n") >= goal):
            assert time.monotonic() < until, "no row was answered"
            time.sleep(0.002)
        kills += child.poll() is None
        child.kill()
        child.communicate()
    assert kills and batch(model, "-i", str(source), "-o", str(out)).code == 0
    assert sorted(out.read_bytes().splitlines()) == sorted(whole.read_bytes().splitlines())


def test_ctrl_c_keeps_what_is_answered_and_says_how_to_go_on(model: str, tmp_path: Path) -> None:
    source = file_of(tmp_path / "in.jsonl", *(row(f"r{i}", f"the river {i}", max_tokens=200) for i in range(400)))
    out = tmp_path / "out.jsonl"
    child = started("batch", "run", "-m", model, "-t", "1", "-i", str(source), "-o", str(out))
    until = time.monotonic() + 120
    while not (out.exists() and out.read_bytes()):
        assert time.monotonic() < until and child.poll() is None
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130 and b"the same command goes on" in err and b"Traceback" not in err
    assert 0 < len(records(out)) < 400


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-i", "none.jsonl", "-o", "out"), 3, "none.jsonl cannot be read (No such file or directory)"),
        (("-i", "empty.jsonl", "-o", "out"), 3, "has no rows"),
        (("-i", "other.jsonl", "-o", "out"), 3, "--alias gpt-4o-mini makes the model answer to that name"),
        (("-i", "in.jsonl", "-o", "in.jsonl"), 2, "are the same file"),
        (("-i", "in.jsonl", "-o", "away/out"), 2, "make it first"),
        (("-i", "in.jsonl", "-o", "out", "--window", "25:00-06:00"), 2, "22:00-06:00"),
        (("-i", "in.jsonl", "-o", "out", "--labels", "a,b"), 2, "is none by its name"),
        (("-i", "in.jsonl",), 2, "-o out.jsonl"),
        (("-i", "in.csv", "-o", "out"), 2, "--text-column"),
        (("--spool", "away"), 2, "mkdir"),
        (("--spool", ".", "-i", "in.jsonl"), 2, "leave -i"),
        (("-i", "in.jsonl", "-o", "out", "--golden", "in.jsonl"), 3, "needs custom_id, url, body and expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_told_before_anything_starts(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path / "in.jsonl", row("a", "hi"))
    file_of(tmp_path / "other.jsonl", row("a", "hi", model="gpt-4o-mini"))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "in.csv").write_text("text\nhi\n")
    done = inside("batch", "run", "-m", model, *words)
    assert done.code == code and said in done.err and done.err.count("\n") == 1, done.err
    assert not (tmp_path / "out").exists()


def test_an_alias_takes_rows_that_name_another_model(model: str, tmp_path: Path) -> None:
    source = file_of(tmp_path / "in.jsonl", row("a", "hi", model="gpt-4o-mini", max_tokens=2))
    done = batch(model, "-i", str(source), "-o", str(tmp_path / "o"), "--alias", "gpt-4o-mini")
    assert done.code == 0 and records(tmp_path / "o")["a"]["response"]["body"]["model"] == "gpt-4o-mini"


def test_answers_of_another_input_are_not_mixed_in(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out.jsonl")
    first = file_of(tmp_path / "1.jsonl", row("a", "hi", max_tokens=2), "{")
    other = file_of(tmp_path / "2.jsonl", row("a", "ho", max_tokens=2))
    assert batch(model, "-i", str(first), "-o", out).code == 1
    done = batch(model, "-i", str(other), "-o", out)
    assert done.code == 2 and "out.jsonl holds answers of another input" in done.err
    for name in ("out.jsonl", "out.jsonl.meta"):
        (tmp_path / name).unlink()
    done = batch(model, "-i", str(other), "-o", out)
    assert done.code == 2 and "out.jsonl.errors.jsonl holds answers of another input" in done.err


def test_failed_rows_are_tried_again_without_their_file(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    source = file_of(tmp_path / "in.jsonl", row("a", "hi", max_tokens=2), row("long", "word " * 3000))
    for _ in range(2):
        done = batch(model, "-i", str(source), "-o", str(out))
        (job,) = json.loads(done.out)["jobs"]
        assert done.code == 1 and (job["completed"], job["failed"]) == (1, 1)
        assert "context_length_exceeded" in Path(job["errors"]).read_text()
        Path(job["errors"]).unlink()


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_is_tagged_reviewed_and_becomes_a_golden_set(model: str, tmp_path: Path) -> None:
    source, out, task = tmp_path / "in.csv", tmp_path / "out.csv", tmp_path / "task.txt"
    source.write_text('id,text\n7,"a bird, ""singing"""\n8,the river\n9,\n')
    task.write_text("Say what it is about.")
    words = ("-i", str(source), "-o", str(out), "--text-column", "text", "--labels", ",".join(LABELS), "--id-column",
             "id", "--instruction-file", str(task))  # fmt: skip
    assert batch(model, *words).code == 0
    tagged = table_of(out)
    assert [one["id"] for one in tagged] == ["7", "8", "9"] and tagged[0]["text"] == 'a bird, "singing"'
    assert {tagged[0]["label"], tagged[1]["label"]} <= set(LABELS)
    assert tagged[2]["label"] == "" and tagged[2]["error"] == "the text is empty"

    review, golden = tmp_path / "review.csv", tmp_path / "golden.jsonl"
    assert inside("batch", "review", str(out), "-o", str(review)).code == 0
    lines = table_of(review)
    sure = [float(one["confidence"]) for one in lines]
    assert 1 / 3 <= sure[0] <= sure[1] <= 1 and lines[0]["runner_up"] in set(LABELS) - {lines[0]["value"]}
    assert {one["custom_id"] for one in lines} == {"7", "8"} and lines[0]["text"] in ('a bird, "singing"', "the river")
    other = {label: LABELS[(i + 1) % 3] for i, label in enumerate(LABELS)}
    lines[0]["corrected"], lines[1]["corrected"] = other[lines[0]["value"]], lines[1]["value"]
    with review.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    done = inside("batch", "correct", str(review), str(out), "--golden", str(golden), "--json")
    told = json.loads(done.out)
    assert (told["corrected"], told["confirmed"], told["golden_rows"]) == (1, 1, 2)
    for _ in range(2):  # as corrected, and as made anew by another run
        rows = {one["id"]: one for one in table_of(out)}
        assert rows[lines[0]["custom_id"]]["label"] == lines[0]["corrected"]
        assert [rows[name]["reviewed"] for name in ("7", "8", "9")] == ["yes", "yes", ""]
        assert batch(model, *words).code == 0

    rows_file = file_of(tmp_path / "in.jsonl", row("a", "hi", max_tokens=2))
    run = ("-i", str(rows_file), "-o", str(tmp_path / "night.jsonl"), "--golden", str(golden))
    held = batch(model, *run, "--golden-min", "0.9")
    assert held.code == 1 and "only 1 of 2 golden rows" in held.err and lines[0]["custom_id"] in held.err
    assert not (tmp_path / "night.jsonl").exists(), "the batch was held"
    done = batch(model, *run, "--golden-min", "0.5")
    assert done.code == 0 and json.loads(done.out)["golden"] == {"total": 2, "right": 1, "share": 0.5}

    lines[0]["corrected"] = "stone"
    with review.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    wrong = inside("batch", "correct", str(review), str(out))
    assert wrong.code == 3 and "line 2: 'stone' is none of the values of 'label': bird, river, flower" in wrong.err


def test_a_spool_is_worked_off_oldest_first_and_what_is_no_input_is_put_aside(model: str, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    mine = file_of(tmp_path / "mine.jsonl", row("a", "hi", max_tokens=2))
    for _ in range(2):  # the same name twice
        done = inside("batch", "add", str(mine), "--spool", str(spool))
        assert done.code == 0 and "1 rows" in done.out
    dropped = file_of(spool / "dropped.jsonl", row("b", "ho", max_tokens=2))
    bad = file_of(spool / "bad.jsonl", "no rows")
    for path in (dropped, bad):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    done = batch(model, "--spool", str(spool))
    jobs = json.loads(done.out)["jobs"]
    assert done.code == 3 and [Path(job["input"]).name for job in jobs] == [
        "bad.jsonl", "dropped.jsonl", "mine.jsonl", "mine-2.jsonl",
    ]  # fmt: skip
    assert [path.name for path in spool.glob("*.jsonl")] == []
    assert "none of the file's 1 lines is a good row" in (spool / "refused" / "bad.jsonl.why.txt").read_text()
    assert {path.name for path in (spool / "done").iterdir()} == {"dropped.jsonl", "mine.jsonl", "mine-2.jsonl"}
    assert records(spool / "out" / "dropped.jsonl").keys() == {"b"}


def test_a_bad_file_is_not_added(tmp_path: Path) -> None:
    bad = file_of(tmp_path / "bad.jsonl", row("a", "hi"), "{")
    done = inside("batch", "add", str(bad), "--spool", str(tmp_path))
    assert done.code == 3 and "1 lines of bad.jsonl are no rows; line 2" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_a_window_that_closes_ends_the_engine_and_the_next_opening_goes_on(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps to the day once some rows are answered, and back into the night when it is waited for."""
    from appliance.cli import batch_work

    out = tmp_path / "out.jsonl"
    source = file_of(tmp_path / "in.jsonl", *(row(f"r{i}", f"the bird {i}", max_tokens=8) for i in range(60)))
    seen: list[tuple[str, int]] = []

    class Clock(datetime):
        hour_now = 23

        @classmethod
        def now(cls, tz: Any = None) -> "Clock":
            return cls(2026, 1, 1, cls.hour_now, 0)

    begun, waited = batch_work.Workshop.engine, batch_work.asyncio.sleep

    def engine(self: Any) -> Any:
        seen.append(("engine", len(records(out)) if out.exists() else 0))
        return begun(self)

    told = batch_work.Bar.told

    def close(self: Any, counts: Any, groups: Any) -> None:
        told(self, counts, groups)
        if counts.completed >= 20 and not any(what == "wait" for what, _ in seen):
            Clock.hour_now = 12

    async def wait(seconds: float) -> None:
        if Clock.hour_now == 12:
            seen.append(("wait", len(records(out))))
            Clock.hour_now = 23
            seconds = 0
        await waited(seconds)

    monkeypatch.setattr(batch_work, "datetime", Clock)
    monkeypatch.setattr(batch_work.Workshop, "engine", engine)
    monkeypatch.setattr(batch_work.Bar, "told", close)
    monkeypatch.setattr(batch_work, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": wait}))
    done = batch(model, "-i", str(source), "-o", str(out), "--window", "22:00-06:00")
    assert done.code == 0 and len(records(out)) == 60 and "waiting for 22:00-06:00, in 600 min" in done.err
    assert [what for what, _ in seen] == ["engine", "wait", "engine"]
    assert 20 <= seen[1][1] < 60, "what ran was finished and written, the rest waited"


def test_a_terminal_sees_a_bar_and_no_keys(model: str, tmp_path: Path) -> None:
    source = file_of(tmp_path / "in.jsonl", *(row(f"r{i}", f"the bird {i}", max_tokens=8) for i in range(40)))
    ours, theirs = pty.openpty()
    words = ("batch", "run", "-m", model, "-t", "1", "-i", str(source), "-o", str(tmp_path / "out.jsonl"))
    child = started(*words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while part := os.read(ours, 4096):
            seen += part
    os.close(ours)
    assert child.wait(120) == 0 and b"####] 100% 40/40 rows" in seen and b"40 of 40 rows answered" in seen
    assert b"done by " in seen and b"ck-" not in seen
