"""A batch is answered whole whatever happens: cuts at every place, a full disk, broken rows, a cancel, other inputs."""

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.batches.results import MICRO, BadResults, CannotStore, Results, by_line
from appliance.batches.rows import BadInput, Row, scan
from appliance.batches.run import Counts, NotNow, Outcome, Run
from engine.errors import ContextLengthExceeded
from tests.appliance.batches.test_rows import file_of, row

Answer = Callable[[Row], Awaitable[Outcome]]


async def answer(given: Row) -> Outcome:
    """A function of the row alone, as the engine is one."""
    await asyncio.sleep(0)
    text = given.body["messages"][-1]["content"]
    return Outcome(200, {"text": hashlib.sha256(text.encode()).hexdigest()})


class Batch:
    """Input, output and errors in a folder; `go` is one life of the process."""

    def __init__(self, folder: Path, *lines: object) -> None:
        self.source = file_of(folder, *lines)
        self.out, self.err = folder / "out.jsonl", folder / "err.jsonl"

    def run(self, with_answer: Answer = answer, width: int = 4, **more: Any) -> Run:
        found = scan(self.source)
        errors = Results(self.err, found.sha256, by_line)
        return Run(found, self.source, Results(self.out, found.sha256), errors, with_answer,
                   width=lambda: width, **more)  # fmt: skip

    def go(self, with_answer: Answer = answer, width: int = 4, **more: Any) -> Counts:
        run = self.run(with_answer, width, **more)
        try:
            return asyncio.run(run.open().go())
        finally:
            run.close()

    def lines(self, path: Path) -> dict[str, bytes]:
        raw = path.read_bytes().splitlines()
        found = {json.loads(line)["custom_id"]: line for line in raw}
        assert len(found) == len(raw), "a row was answered twice"
        return found


def rows(n: int) -> list[dict[str, Any]]:
    return [row(f"r{i}", f"text {i % (n - 2)} é" + "x" * (i % 7)) for i in range(n)]


def test_a_crash_at_any_byte_of_the_output_costs_nothing_but_the_torn_row(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *rows(12))
    assert batch.go() == Counts(12, 12, 0)
    whole, expected = batch.out.read_bytes(), batch.lines(batch.out)
    for cut in range(0, len(whole), 11):
        batch.out.write_bytes(whole[:cut])
        asked: list[str] = []

        async def count(given: Row, asked: list[str] = asked) -> Outcome:
            asked.append(given.custom_id)
            return await answer(given)

        assert batch.go(count) == Counts(12, 12, 0)
        assert batch.lines(batch.out) == expected
        kept = whole[:cut].count(b"\n") + (whole[cut : cut + 1] == b"\n")
        assert (
            len(asked) <= 12 - kept
            and batch.out.read_bytes()[: whole[:cut].rfind(b"\n") + 1] == whole[:cut][: whole[:cut].rfind(b"\n") + 1]
        )


def test_equal_rows_are_answered_once_and_say_whose_answer_they_have(tmp_path: Path) -> None:
    asked = []

    async def count(given: Row) -> Outcome:
        asked.append(given.custom_id)
        return await answer(given)

    batch = Batch(tmp_path, row("a", "same"), row("b", "other"), *(row(f"c{i}", "same") for i in range(600)))
    assert batch.go(count) == Counts(602, 602, 0) and sorted(asked) == ["a", "b"]
    bodies = {key: json.loads(line)["response"]["body"] for key, line in batch.lines(batch.out).items()}
    assert bodies["c599"] == {**bodies["a"], "colibri": {"copied_from": "a"}} and "colibri" not in bodies["a"]
    whole = batch.out.read_bytes().splitlines(keepends=True)
    batch.out.write_bytes(b"".join(whole[:300]))
    assert batch.go(count) == Counts(602, 602, 0) and sorted(asked) == ["a", "b"], "copies were lost, no answer"
    assert sorted(batch.out.read_bytes().splitlines(keepends=True)) == sorted(whole)


def test_bad_lines_become_records_with_their_numbers_once(tmp_path: Path) -> None:
    batch = Batch(tmp_path, row("a"), b"{", row("a"), row("b"), [1])
    for _ in range(2):
        assert batch.go() == Counts(5, 2, 3)
        records = [json.loads(line) for line in batch.err.read_bytes().splitlines()]
        assert [(r["error"]["line"], r["custom_id"], r["response"]) for r in records] == [
            (2, None, None), (3, "a", None), (5, None, None),
        ]  # fmt: skip
        assert batch.lines(batch.out).keys() == {"a", "b"}


def test_a_refused_row_is_failed_and_not_answered(tmp_path: Path) -> None:
    async def refuse(given: Row) -> Outcome:
        if given.custom_id == "b":
            raise ContextLengthExceeded("the prompt has 9,000 tokens", param="messages")
        return await answer(given)

    batch = Batch(tmp_path, row("a", "1"), row("b", "2"), row("c", "3"))
    assert batch.go(refuse) == Counts(3, 2, 1)
    (record,) = [json.loads(line) for line in batch.err.read_bytes().splitlines()]
    assert record["response"]["status_code"] == 400 and record["custom_id"] == "b"
    assert record["error"] == {
        "code": "context_length_exceeded", "message": "the prompt has 9,000 tokens", "param": "messages", "line": 2,
    }  # fmt: skip


def test_a_row_that_breaks_the_engine_is_tried_once_more_alone_and_then_left_behind(tmp_path: Path) -> None:
    running: set[str] = set()
    company: dict[str, list[set[str]]] = {}

    async def fragile(given: Row) -> Outcome:
        """One row takes all that run with it down, as a crash of the engine does."""
        running.add(given.custom_id)
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            company.setdefault(given.custom_id, []).append(set(running))
            if "r5" in running:
                return Outcome(500, {"error": {"code": "engine_failed", "message": "it broke"}}, is_broken=True)
            return await answer(given)
        finally:
            running.discard(given.custom_id)

    batch = Batch(tmp_path, *(row(f"r{i}", f"t{i}") for i in range(20)))
    assert batch.go(fragile) == Counts(20, 19, 1)
    assert [len(together) for together in company["r5"]][1:] == [1], "the second try is alone, and the last"
    (record,) = [json.loads(line) for line in batch.err.read_bytes().splitlines()]
    assert (record["custom_id"], record["error"]["code"]) == ("r5", "engine_failed")


def test_a_row_that_raises_what_nobody_expected_does_not_stop_the_others(tmp_path: Path) -> None:
    async def odd(given: Row) -> Outcome:
        if given.custom_id == "b":
            raise KeyError("a defect")
        return await answer(given)

    batch = Batch(tmp_path, row("a", "1"), row("b", "2"), row("c", "3"))
    assert batch.go(odd) == Counts(3, 2, 1)
    assert b"a defect" not in batch.err.read_bytes()


def test_nobody_there_is_not_the_rows_fault(tmp_path: Path) -> None:
    refusals = 30

    async def busy(given: Row) -> Outcome:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise NotNow(0.0)
        return await answer(given)

    assert Batch(tmp_path, *rows(6)).go(busy) == Counts(6, 6, 0)


def test_no_more_rows_are_in_work_or_unwritten_than_a_crash_may_cost(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *(row(f"r{i}", f"t{i}") for i in range(100)))
    begun = 0

    async def count(given: Row) -> Outcome:
        nonlocal begun
        begun += 1
        on_disk = batch.out.read_bytes().count(b"\n") if batch.out.exists() else 0
        assert begun - on_disk <= MICRO
        return await answer(given)

    assert batch.go(count, width=64) == Counts(100, 100, 0)


def test_a_cancel_keeps_what_is_complete_and_the_rest_can_be_written_off(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *(row(f"r{i}", f"t{i}") for i in range(30)))
    n = 0

    async def main() -> None:
        async def some(given: Row) -> Outcome:
            nonlocal n
            n += 1
            if n > 10:
                task.cancel()
                await asyncio.Event().wait()
            return await answer(given)

        run = batch.run(some).open()
        task = asyncio.create_task(run.go())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.counts() == Counts(30, 10, 0)
        run.abandon("batch_cancelled", "the batch was cancelled")
        assert run.counts() == Counts(30, 10, 20)
        run.close()

    asyncio.run(main())
    codes = {json.loads(line)["error"]["code"] for line in batch.err.read_bytes().splitlines()}
    assert codes == {"batch_cancelled"} and len(batch.lines(batch.out).keys() | batch.lines(batch.err).keys()) == 30


def test_a_full_disk_stops_the_batch_and_it_goes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(tmp_path, *rows(12))
    batch.go()
    expected = batch.lines(batch.out)
    batch.out.unlink()
    room, write = 2000, os.write

    def full(fd: int, data: Any) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        n = write(fd, data[:room])
        room -= n
        return n

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CannotStore, match="No space left"):
        batch.go()
    monkeypatch.undo()
    assert batch.out.read_bytes()[-1:] == b"\n", "half a record was left, or none"
    assert batch.go() == Counts(12, 12, 0) and batch.lines(batch.out) == expected


def test_answers_of_another_input_are_never_mixed(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *rows(4))
    batch.go()
    file_of(tmp_path, *rows(5))
    with pytest.raises(BadResults, match="another input"):
        batch.go()
    (tmp_path / "out.jsonl.meta").unlink()
    (tmp_path / "err.jsonl.meta").unlink()
    batch.out.write_bytes(b'{"custom_id": "zz", "response": {"body": {}}}\n')
    with pytest.raises(BadResults, match="1 rows that the input does not have"):
        batch.go()


def test_damage_before_the_last_line_is_an_error_and_a_line_without_its_end_is_mended(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *rows(4))
    batch.go()
    whole = batch.out.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damaged in (lines[0][:20] + b"\n" + lines[1], lines[0] + b"\0" * 9 + b"\n", lines[0] + lines[0], b"[]\n"):
        batch.out.write_bytes(damaged)
        with pytest.raises(BadResults, match=r"line [12] of out\.jsonl"):
            batch.go()
        assert batch.out.read_bytes() == damaged, "damage is for people to look at"
    for torn in (whole[:-1], lines[0] + "é".encode()[:1], lines[0] + b"\0" * 40):
        batch.out.write_bytes(torn)
        assert batch.go() == Counts(4, 4, 0)
        assert sorted(batch.out.read_bytes().splitlines(keepends=True)) == sorted(lines)


def test_two_processes_cannot_write_one_output(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *rows(4))
    first = batch.run().open()
    with pytest.raises(BadResults, match="another process"):
        batch.go()
    first.close()
    assert batch.go() == Counts(4, 4, 0)


def test_an_input_edited_while_it_runs_ends_the_batch_with_what_is_done(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *(row(f"r{i}", f"t{i}") for i in range(10, 40)))

    async def edit(given: Row) -> Outcome:
        if given.custom_id == "r20":
            batch.source.write_bytes(batch.source.read_bytes().replace(b"t39", b"t93"))
        return await answer(given)

    with pytest.raises(BadInput, match="has changed since"):
        batch.go(edit)
    assert len(batch.lines(batch.out)) >= 20


def test_an_input_deleted_while_it_runs_is_still_answered(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *rows(10))

    async def delete(given: Row) -> Outcome:
        batch.source.unlink(missing_ok=True)
        return await answer(given)

    assert batch.go(delete) == Counts(10, 10, 0)


def test_nothing_begins_once_it_may_not_and_what_runs_is_written(tmp_path: Path) -> None:
    batch = Batch(tmp_path, *(row(f"r{i}", f"t{i}") for i in range(12)))
    begun: list[str] = []

    async def count(given: Row) -> Outcome:
        begun.append(given.custom_id)
        return await answer(given)

    counts = batch.go(count, may_begin=lambda: len(begun) < 5)
    assert 5 <= counts.completed < 12 and counts.completed == len(begun)
    assert batch.go(count) == Counts(12, 12, 0) and len(begun) == 12


def test_a_row_that_waits_for_the_engine_is_left_for_later_when_it_may_not_begin(tmp_path: Path) -> None:
    refused = 0

    async def nobody(given: Row) -> Outcome:
        nonlocal refused
        refused += 1
        raise NotNow(0.0)

    batch = Batch(tmp_path, *rows(6))
    assert batch.go(nobody, may_begin=lambda: refused < 9) == Counts(6, 0, 0)
    assert batch.go() == Counts(6, 6, 0)
