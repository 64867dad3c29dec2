"""Works through the batches: one at a time, the oldest that may work now. Not here: answering a row (api/rows.py).

A batch that may not work now (its window is closed, another profile serves) leaves the place to the next one: what runs
is finished and written, the rest waits. After a restart everything goes on from what the disk has.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from appliance.batches.forecast import Forecast, words, work
from appliance.batches.golden_file import Golden
from appliance.batches.job import Doc, Options, listed, public
from appliance.batches.library import Library
from appliance.batches.order import Group
from appliance.batches.results import BadResults, CannotStore, Results, by_line
from appliance.batches.rows import BadInput, Row, Scan, scan
from appliance.batches.run import Counts, Outcome, Run

LOOK_S = 2.0
"""How often a waiting batch looks whether it may work."""
FULL_S = 30.0
"""Pause after the disk took nothing."""
T = TypeVar("T")
log = logging.getLogger("colibri.batch")


class Engine(Protocol):
    """Who answers the rows."""

    def serves(self) -> tuple[str | None, str]:
        """The profile and the model that answer now."""

    def width(self) -> int:
        """Rows to have under way at once."""

    def check(self, url: str, body: dict[str, Any]) -> None:
        """Raise what a body would meet whatever the model; in a thread."""

    def fingerprint(self) -> str:
        """Names build, weights and kernels: another one may answer otherwise."""

    async def answer(self, job: Doc, sha256: str, row: Row, is_drawn: bool) -> Outcome: ...


class Executor:
    """`begin` and `close` once; `wake` after a change; `shown` is a batch with what is known of it now."""

    def __init__(self, library: Library, clock: Callable[[], datetime] = datetime.now) -> None:
        self.shelf = library
        self._clock = clock
        self.engine: Engine | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._current: str | None = None
        self._going: asyncio.Task[Any] | None = None
        self._held: dict[str, tuple[str, str]] = {}
        self._runs: dict[str, tuple[Run, Scan]] = {}
        self._counts: dict[str, Counts] = {}
        self._forecasts: dict[str, Forecast] = {}
        self._full_until = 0.0

    def begin(self, engine: Engine) -> None:
        self.engine = engine
        self._task = asyncio.create_task(self._loop(), name="batches")

    async def close(self) -> None:
        """Stop; what is complete has been written."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for run, _ in self._runs.values():
            run.close()

    def wake(self) -> None:
        self._news.set()

    async def cancel(self, doc: Doc) -> Doc:
        """Cancel a batch in whatever state; one that has ended, or is about to, stays as it is."""
        doc = await self.shelf.advance(doc["id"], "cancelling")
        if doc["status"] == "cancelling" and self._current == doc["id"] and self._going is not None:
            self._going.cancel()
        self.wake()
        return doc

    def shown(self, doc: Doc) -> Doc:
        """The batch as its client sees it, with counts and a forecast while it is under way."""
        name = doc["id"]
        counts = self._counts.get(name)
        if counts is None or doc["status"] not in ("in_progress", "finalizing", "cancelling"):
            return public(doc)
        n = {"total": counts.total, "completed": counts.completed, "failed": counts.failed}
        ours: Doc = {"waits": self._waits(doc)} if doc["status"] == "in_progress" else {}
        if (forecast := self._forecasts.get(name)) is not None and (left := forecast.left()) is not None:
            ours |= {"finish": words(left, self._clock(), Options.read(doc["metadata"] or {}).window),
                     "left_s": round(left.s), "left_range_s": [round(left.low_s), round(left.high_s)]}  # fmt: skip
        return public({**doc, "request_counts": n}, {key: value for key, value in ours.items() if value is not None})

    def figures(self) -> Doc:
        """For metrics: rows by state of the batch that works, and its seconds left."""
        counts = self._counts.get(self._current or "")
        forecast = self._forecasts.get(self._current or "")
        left = forecast.left() if forecast is not None else None
        return {
            "waiting": counts.left if counts else 0, "completed": counts.completed if counts else 0,
            "failed": counts.failed if counts else 0, "eta_s": left.s if left else None,
        }  # fmt: skip

    # Inside

    async def _loop(self) -> None:
        while True:
            self._news.clear()
            doc = None
            if time.monotonic() >= self._full_until:
                doc = next((one for one in await self.shelf.unfinished() if self._waits(one) is None), None)
            if doc is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
                continue
            try:
                self._current = doc["id"]
                await self._work(doc)
            except CannotStore as error:
                log.error("%s waits: %s", doc["id"], error.message)
                self._full_until = time.monotonic() + FULL_S
            except Exception as error:
                # One batch must not stop the others; what it met is in the log, and in the batch if the disk takes it.
                log.exception("%s failed: %s", doc["id"], type(error).__name__)
                with contextlib.suppress(CannotStore):
                    await self._fail(doc, "internal_error", "the server failed on this batch; its log has the reason")
            finally:
                self._current = self._going = None

    def _waits(self, doc: Doc) -> str | None:
        """Why a batch does not work now; None when it may."""
        if doc["status"] != "in_progress" or self._is_over(doc):
            return None
        assert self.engine is not None
        options = Options.read(doc["metadata"] or {})
        if options.window is not None and not options.window.is_open(self._clock()):
            return f"for its hours, {options.window}"
        profile, model = self.engine.serves()
        if options.profile is not None and profile != options.profile:
            return f"for the profile {options.profile}"
        if doc["model"] is not None and doc["model"] != model:
            return f"for the model {doc['model']}, which it began with"
        fingerprint, why = self._held.get(doc["id"], ("", ""))
        return why if fingerprint == self.engine.fingerprint() else None

    def _is_over(self, doc: Doc) -> bool:
        return doc["expires_at"] is not None and time.time() >= doc["expires_at"]

    async def _work(self, doc: Doc) -> None:
        try:
            if doc["status"] == "validating":
                doc = await self._validate(doc)
            if doc["status"] in ("in_progress", "cancelling", "finalizing"):
                await self._go(doc)
        except (BadInput, BadResults, OSError) as error:
            problems = [problem.document() for problem in getattr(error, "problems", ())]
            text = error.strerror or "the disk failed" if isinstance(error, OSError) else error.message
            await self._fail(doc, getattr(error, "code", "unreadable"), text, problems)

    async def _validate(self, doc: Doc) -> Doc:
        found = await self._scan(doc)
        problems = [problem.document() for problem in found.problems]
        assert self.engine is not None
        return await self.shelf.advance(
            doc["id"], "in_progress", sha256=found.sha256, model=self.engine.serves()[1],
            errors=listed(problems) if problems else None,
            request_counts={"total": found.n_lines, "completed": 0, "failed": 0},
        )  # fmt: skip

    async def _scan(self, doc: Doc) -> Scan:
        """The input, looked at; opens the run when it may be gone on with."""
        name = doc["id"]
        if name in self._runs:
            return self._runs[name][1]
        assert self.engine is not None
        file = await self.shelf.file(doc["input_file_id"], None)
        if file is None:
            raise BadInput("the input file is not there any more", "input_missing")
        source = self.shelf.path(file)
        found = await asyncio.to_thread(scan, source, doc["endpoint"], None, self.engine.check)
        out, err = await asyncio.to_thread(self.shelf.results, doc)
        drawn = {ref.line for ref in found.refs if ref.is_drawn}

        async def answer(row: Row) -> Outcome:
            assert self.engine is not None
            return await self.engine.answer(in_force, found.sha256, row, row.line in drawn)

        run = Run(
            found, source, Results(out, found.sha256), Results(err, found.sha256, by_line), answer,
            width=self.engine.width, may_begin=lambda: self._waits(in_force) is None and not self._is_over(doc),
            told=partial(self._told, name),
        )  # fmt: skip
        in_force = {**doc, "status": "in_progress", "model": doc["model"] or self.engine.serves()[1]}
        await asyncio.to_thread(run.open)
        self._runs[name] = (run, found)
        self._counts[name] = run.counts()
        forecast = Forecast(sum(_work(group) for group in await asyncio.to_thread(run.pending)))
        self._forecasts[name] = forecast
        return found

    async def _go(self, doc: Doc) -> None:
        """From wherever it was left to its end, or until it may not work."""
        await self._scan(doc)
        run = self._runs[doc["id"]][0]
        if doc["status"] == "in_progress":
            if await self._follow(self._is_held(doc)):
                return
            self._forecasts[doc["id"]].begin(time.monotonic())
            counts = await self._follow(run.go())
            if counts is not None:
                if counts.left and not self._is_over(doc):
                    return
                if not counts.left:
                    doc = await self.shelf.advance(doc["id"], "finalizing")
            doc = await self.shelf.batch(doc["id"]) or doc
        if doc["status"] == "cancelling":
            await self.shelf.call(run.abandon, "batch_cancelled", "the batch was cancelled before this row")
            await self._end(doc, "cancelled")
        elif doc["status"] == "in_progress":
            await self.shelf.call(run.abandon, "batch_expired", "the batch's time was over before this row")
            await self._end(doc, "expired")
        elif doc["status"] == "finalizing":
            await self._end(doc, "completed")

    async def _follow(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Its result; None when the batch's cancel ended it."""
        self._going = going = asyncio.create_task(work)
        try:
            await asyncio.wait([going])
        except asyncio.CancelledError:
            going.cancel()
            await asyncio.wait([going])
            raise
        return None if going.cancelled() else going.result()

    async def _is_held(self, doc: Doc) -> bool:
        """Ask the rows with known answers, if the batch has some; it is held until another engine answers when too few
        come out right."""
        options, engine = Options.read(doc["metadata"] or {}), self.engine
        self._held.pop(doc["id"], None)
        if options.golden is None or engine is None:
            return False
        file = await self.shelf.file(options.golden, doc["owner"])
        if file is None:
            raise BadInput("the file of colibri_golden is not there any more", "golden_missing")
        golden = await asyncio.to_thread(Golden.read, self.shelf.path(file))

        async def ask(url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            outcome = await engine.answer(doc, options.golden or "", Row(0, "golden", url, body), False)
            return outcome.status, outcome.body

        share = await golden.judge(ask)
        if share >= options.golden_share:
            return False
        why = (
            f"held: {golden.right} of {golden.total} rows with known answers came out right, "
            f"{options.golden_share:g} of them must; the first wrong one is {golden.first_wrong}"
        )
        log.warning("%s is %s", doc["id"], why)
        self._held[doc["id"]] = (engine.fingerprint(), why)
        return True

    async def _end(self, doc: Doc, status: str) -> None:
        run = self._runs[doc["id"]][0]
        counts = run.counts()
        files = await self.shelf.call(self.shelf.register, doc)
        usage = await asyncio.to_thread(_usage, self.shelf.results(doc)[0])
        n = {"total": counts.total, "completed": counts.completed, "failed": counts.failed}
        await self.shelf.advance(doc["id"], status, request_counts=n, usage=usage, **files)
        log.info("%s is %s: %d rows answered, %d failed", doc["id"], status, counts.completed, counts.failed)
        self._forget(doc)

    async def _fail(self, doc: Doc, code: str, message: str, problems: list[Doc] | None = None) -> None:
        """The batch as a whole cannot be done; what it has is kept. One that was to be cancelled is cancelled."""
        doc = await self.shelf.batch(doc["id"]) or doc
        errors = listed(problems or [{"code": code, "message": message, "param": None, "line": None}])
        files = await self.shelf.call(self.shelf.register, doc)
        status = {"cancelling": "cancelled", "finalizing": "completed"}.get(doc["status"], "failed")
        await self.shelf.advance(doc["id"], status, errors=errors, **files)
        self._forget(doc)

    def _forget(self, doc: Doc) -> None:
        if (entry := self._runs.pop(doc["id"], None)) is not None:
            entry[0].close()
        self._counts.pop(doc["id"], None)
        self._held.pop(doc["id"], None)
        self._forecasts.pop(doc["id"], None)

    def _told(self, name: str, counts: Counts, groups: list[Group]) -> None:
        self._counts[name] = counts
        for group in groups:
            self._forecasts[name].note(_work(group), time.monotonic())


def _work(group: Group) -> float:
    return work(group.first.weight)


def _usage(path: Path) -> Doc:
    """All tokens of an output file."""
    n_in = n_out = 0
    with path.open("rb") as file:
        for line in file:
            body = json.loads(line)["response"]["body"]
            told = body.get("usage") if "copied_from" not in (body.get("colibri") or {}) else None
            if isinstance(told, dict):
                n_in += int(told.get("prompt_tokens") or 0)
                n_out += int(told.get("completion_tokens") or 0)
    return {"input_tokens": n_in, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": n_out,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": n_in + n_out}  # fmt: skip
