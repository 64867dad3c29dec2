"""A batch being answered: from the rows that are left to records on the disk. Not here: who answers, a job's life.

    ordered groups ──▶ running (≤ width) ──▶ ready ──▶ one append, one fsync
                            │  ▲
                    broken  ▼  │ alone, once more
                          suspects

Running and ready together are at most MICRO rows, so that a crash costs no more than those. A row that breaks the
engine, or was in its company when it broke, is tried once more by itself, and if it breaks then it goes to the error
file: it cannot stop the others. Going on after a crash is the same call again: what is in the files is not answered
anew.
"""

import asyncio
import contextlib
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from appliance.batches.order import Group, ordered
from appliance.batches.record import answer_record, problem_record, unanswered_record
from appliance.batches.results import MICRO, BadResults, Results
from appliance.batches.rows import Ref, Row, Scan, read_row
from engine.errors import ColibriError

COPIES = 256
"""Records of one append that cost no computing."""
log = logging.getLogger("colibri.batch")


class NotNow(Exception):
    """Nobody can answer for the moment, which is not the row's fault; it is asked again after `after_s` seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"again in {after_s} s")
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer's status and body. `is_broken` where the engine failed on it, and not the row's wording."""

    status: int
    body: dict[str, Any]
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of the file, those answered, those in the error file."""

    total: int
    completed: int
    failed: int

    @property
    def left(self) -> int:
        return self.total - self.completed - self.failed


Answers = Callable[[Row], Awaitable[Outcome]]
"""Raises NotNow, or a ColibriError, which is the row's answer then."""
Leave = Callable[[], bool]
"""Whether a row may begin now."""
Told = Callable[[Counts, list[Group]], None]
"""Called in a thread after each append with the groups that are now done."""


class Run:
    """`open` it, `go` (cancel the task to stop: what is complete is written first), maybe `abandon`, `close`.

    `output` and `errors` (a Results by line) are opened and closed with it.
    """

    def __init__(
        self,
        found: Scan,
        source: Path,
        output: Results,
        errors: Results,
        answer: Answers,
        *,
        width: Callable[[], int],
        may_begin: Leave = lambda: True,
        told: Told = lambda counts, groups: None,
    ) -> None:
        self.groups = ordered(found.refs)
        self._found, self._source, self._output, self._errors = found, source, output, errors
        self._answer, self._width, self._may_begin, self._told = answer, width, may_begin, told
        self._file: BinaryIO | None = None
        self._ready: list[tuple[Group, Outcome]] = []

    def counts(self) -> Counts:
        return Counts(self._found.n_lines, len(self._output.done), len(self._errors.done))

    def pending(self) -> list[Group]:
        """The groups of which at least one row has no record, in the order to answer them."""
        return [group for group in self.groups if any(self._is_left(ref) for ref in group.refs)]

    # In a thread

    def open(self) -> "Run":
        """Read what is there, write the bad lines down. Raises BadResults, CannotStore, OSError."""
        self._file = self._source.open("rb")  # held open: it may be deleted while the batch runs
        self._output.open()
        self._errors.open()
        self._check_known()
        left = [problem for problem in self._found.problems if problem.line not in self._errors.done]
        for some in _some(left):
            self._errors.append([problem_record(self._found.sha256, problem) for problem in some])
        return self

    def close(self) -> None:
        self._output.close()
        self._errors.close()
        if self._file is not None:
            self._file.close()

    def abandon(self, code: str, message: str) -> None:
        """Write down all rows that are left as not answered."""
        left = [ref for group in self.groups for ref in group.refs if self._is_left(ref)]
        for some in _some(left):
            sha = self._found.sha256
            self._errors.append([unanswered_record(sha, ref.line, ref.custom_id, code, message) for ref in some])

    # In the loop

    async def go(self) -> Counts:
        """Answer what is left. Once `may_begin` says no, nothing begins any more, what runs is finished and written,
        and it returns with rows left: call it again later, as after CannotStore. Raises BadInput: the file has changed.
        """
        queue: deque[Group] = deque()
        for group in await asyncio.to_thread(self.pending):
            if all(self._is_left(ref) for ref in group.refs):
                queue.append(group)
            else:
                await _whole(asyncio.to_thread(self._copy, group))
        suspects: deque[Group] = deque()
        running: dict[asyncio.Task[Outcome | None], Group] = {}
        retried: set[int] = set()
        try:
            while True:
                if not self._may_begin():
                    pass
                elif suspects:
                    if not running and not self._ready:
                        group = suspects.popleft()
                        running[asyncio.create_task(self._one(group))] = group
                else:
                    room = min(self._width(), MICRO - len(self._ready))
                    while queue and len(running) < room:
                        group = queue.popleft()
                        running[asyncio.create_task(self._one(group))] = group
                if self._ready:
                    await self._write()
                elif running:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    break
                for task in [task for task in running if task.done()]:
                    group, outcome = running.pop(task), task.result()
                    if outcome is None:  # it was not begun
                        queue.appendleft(group)
                    elif outcome.is_broken and group.first.line not in retried:
                        retried.add(group.first.line)
                        suspects.append(group)
                    else:
                        self._ready.append((group, outcome))
        finally:
            await self._leave(running)
        return self.counts()

    async def _one(self, group: Group) -> Outcome | None:
        row = await asyncio.to_thread(self._row, group.first)
        while self._may_begin():
            try:
                return await self._answer(row)
            except NotNow as wait:
                await asyncio.sleep(wait.after_s)
            except ColibriError as error:
                told = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
                return Outcome(error.status, {"error": told}, is_broken=error.status >= 500)
            except Exception as error:
                stack = "".join(traceback.format_tb(error.__traceback__))
                log.error("line %d: unexpected %s\n%s", row.line, type(error).__name__, stack)
                told = {"message": "the server failed on this row; its log has the reason", "type": "server_error",
                        "param": None, "code": "internal_error"}  # fmt: skip
                return Outcome(500, {"error": told}, is_broken=True)
        return None

    async def _write(self) -> None:
        ready, self._ready = self._ready, []
        try:
            await _whole(asyncio.to_thread(self._append, ready))
        except ColibriError:
            self._ready = ready + self._ready
            raise

    async def _leave(self, running: dict[asyncio.Task[Outcome | None], Group]) -> None:
        """Stop what runs; answers that are complete are written, since they have been paid for."""
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for task, group in running.items():
            outcome = None if task.cancelled() or task.exception() is not None else task.result()
            if outcome is not None and not outcome.is_broken:
                self._ready.append((group, outcome))
        if self._ready:
            with contextlib.suppress(ColibriError):
                await self._write()

    # Inside, in a thread

    def _row(self, ref: Ref) -> Row:
        assert self._file is not None
        return read_row(self._file.fileno(), ref)

    def _append(self, ready: Iterable[tuple[Group, Outcome]]) -> None:
        """Records of the first rows of all groups with one fsync per file, then their copies."""
        groups = []
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for group, outcome in ready:
            groups.append(group)
            if self._is_left(group.first):
                row = Row(group.first.line, group.first.custom_id, "", {})
                record = answer_record(self._found.sha256, row, outcome.status, outcome.body)
                (bad if outcome.status >= 400 else good).append(record)
        for results, records in ((self._output, good), (self._errors, bad)):
            if records:
                results.append(records)
        for group in groups:
            self._copy(group)
        self._told(self.counts(), groups)

    def _copy(self, group: Group) -> None:
        """Give the rows of a group that have no record the answer of one that has."""
        left = [ref for ref in group.refs if self._is_left(ref)]
        if not left:
            return
        origin = next(ref for ref in group.refs if not self._is_left(ref))
        is_good = origin.custom_id in self._output.done
        results = self._output if is_good else self._errors
        record = results.read(origin.custom_id if is_good else origin.line)
        for some in _some(left):
            results.append(list(self._copies(record, some)))

    def _copies(self, record: dict[str, Any], refs: Iterable[Ref]) -> Iterator[dict[str, Any]]:
        response, error = record["response"], record["error"]
        if response is None:  # the batch was cancelled, and is gone on with
            sha = self._found.sha256
            yield from (unanswered_record(sha, r.line, r.custom_id, error["code"], error["message"]) for r in refs)
            return
        status, body = response["status_code"], dict(response["body"])
        own = body.get("colibri") if isinstance(body.get("colibri"), dict) else {}
        body["colibri"] = {"copied_from": record["custom_id"], **(own or {})}
        for ref in refs:
            yield answer_record(self._found.sha256, Row(ref.line, ref.custom_id, "", {}), status, body)

    def _is_left(self, ref: Ref) -> bool:
        return ref.custom_id not in self._output.done and ref.line not in self._errors.done

    def _check_known(self) -> None:
        """Answers of rows that the input does not have are of another input."""
        ids = {ref.custom_id: ref.line for ref in self._found.refs}
        lines = set(ids.values()) | {problem.line for problem in self._found.problems}
        for name, known, done in (
            (self._output.path.name, ids.keys(), self._output.done.keys()),
            (self._errors.path.name, lines, self._errors.done.keys()),
        ):
            if strange := [key for key in done if key not in known]:
                text = f"{name} answers {len(strange):,} rows that the input does not have; give another output"
                raise BadResults(text)
        if twice := [key for key in self._output.done if ids[str(key)] in self._errors.done]:
            raise BadResults(f"{len(twice):,} rows are in the output and in the errors; mend one of the files")


T = TypeVar("T")


def _some(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """COPIES of them at a time."""
    rest = iter(items)
    while some := tuple(islice(rest, COPIES)):
        yield some


async def _whole(writing: Awaitable[None]) -> None:
    """Wait for a write even when this task is cancelled meanwhile: it cannot be called back."""
    task = asyncio.ensure_future(writing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
