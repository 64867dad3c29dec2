"""Jobs answered one after the other by an engine of our own, with a bar, inside a window. Not here: which jobs.

Outside the window's hours the engine is not there at all, so that its memory is free by day.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from appliance.api.rows import check as check_body
from appliance.batches.forecast import Forecast, words, work
from appliance.batches.order import Group
from appliance.batches.results import Results, by_line
from appliance.batches.rows import BadInput, Row, Scan, scan
from appliance.batches.run import Counts, NotNow, Outcome, Run
from appliance.batches.window import Window
from appliance.cli.batch_engine import BatchEngine, batch_engine
from appliance.cli.progress import Progress
from appliance.machine.host import read_machine
from appliance.profiles import ProfileStore
from appliance.settings import Resolved, Settings
from appliance.swaps.prepare import Prepared, Resolve, prepare
from engine.errors import ColibriError, DoesNotFit, ModelNotFound

WIDTH = 8
"""Rows computed at once where nobody says how many; one pass over the weights serves them all."""
QUIET_S = 30.0
"""Between two lines of progress where there is no terminal."""
LOOK_S = 20.0
"""Between two looks at the clock while the window is closed."""


@dataclass(slots=True)
class Job:
    """One input and where its answers go. `done` and `computed` are rows of earlier runs and of this one; `refused`
    says why it was not begun, `shown` what a person gave and gets where that is a table."""

    source: Path
    output: Path
    errors: Path
    shown: tuple[Path, Path] | None = None
    counts: Counts = field(default_factory=lambda: Counts(0, 0, 0))
    done: int = 0
    computed: int = 0
    work_s: float = 0.0
    refused: str | None = None

    @property
    def title(self) -> str:
        return (self.shown or (self.source,))[0].name

    def summary(self) -> dict[str, Any]:
        """For --json."""
        given, got = self.shown or (self.source, self.output)
        rate = 60 * self.computed / self.work_s if self.work_s > 0 else 0.0
        return {
            "input": str(given), "output": str(got), "errors": str(self.errors),
            "total": self.counts.total, "completed": self.counts.completed, "failed": self.counts.failed,
            "left": self.counts.left, "refused": self.refused, "done_before": self.done,
            "seconds": round(self.work_s, 2), "rows_per_minute": round(rate, 1),
        }  # fmt: skip


class Workshop:
    """An engine for jobs: `prepare` it, then `work` inside asyncio.run."""

    def __init__(self, resolve: Resolve, profile: str | None, window: Window | None) -> None:
        self._resolve, self._profile, self._window = resolve, profile, window
        self.progress = Progress()
        self._dead: ColibriError | None = None

    def prepare(self, found: Resolved) -> Prepared:
        """Read the model's header and plan the memory: as many rows at once as fit, unless somebody says how many."""
        settings = found.settings
        store = ProfileStore(settings.data_dir)
        profile = store.load(self._profile) if self._profile else None

        def made(settings: Settings) -> Prepared:
            return prepare(settings, read_machine(), profile)

        self.store = store
        if found.provenance["parallel"].source != "default":
            self.prepared = made(settings)
            return self.prepared
        try:
            self.prepared = made(settings.model_copy(update={"parallel": WIDTH}))
            if self.prepared.worker.options["load_mode"] != "stream":
                return self.prepared
        except DoesNotFit:
            pass
        self.prepared = made(settings)
        return self.prepared

    def look(self, job: Job) -> Scan:
        """Read a job's input whole; raises BadInput with exit code 3."""

        def check(url: str, body: dict[str, Any]) -> None:
            name = body.get("model")
            try:
                self.prepared.model.check(name if isinstance(name, str) else None)
            except ModelNotFound as error:
                known = f"{error.message}; --alias {str(name)[:80]} makes the model answer to that name"
                raise ModelNotFound(known, param="model") from None
            check_body(url, body)

        try:
            return scan(job.source, check=check)
        except OSError as error:
            raise unreadable(job.source, error) from None
        except BadInput as error:
            error.exit_code = 3
            raise

    @contextlib.asynccontextmanager
    async def engine(self) -> AsyncIterator[BatchEngine]:
        """The engine, loaded; the window must be open."""
        try:
            async with batch_engine(self.prepared, self.store, self._resolve, self.progress) as service:
                self.progress.close()
                yield service
        finally:
            self.progress.close()

    def is_open(self) -> bool:
        return self._dead is None and (self._window is None or self._window.is_open(datetime.now()))

    async def opening(self) -> None:
        """Wait until the window is open."""
        told = False
        while self._window is not None and not self._window.is_open(datetime.now()):
            left = self._window.opens_in_s(datetime.now())
            if not told:
                self.progress.say_over(f"waiting for {self._window}, in {left / 60:.0f} min")
                told = True
            await asyncio.sleep(min(LOOK_S, left + 0.1))

    async def answer(self, job: Job, found: Scan, service: BatchEngine) -> None:
        """Go on with a job until it is done or the window closes; the counts say which. Raises what ends it."""
        created = int(job.source.stat().st_mtime)
        bar = Bar(job.title, self.progress, self._window)

        drawn = {ref.line for ref in found.refs if ref.is_drawn}

        async def one(row: Row) -> Outcome:
            try:
                return await service.answer(created, found.sha256, row, row.line in drawn)
            except ColibriError as error:
                self._dead = error  # for good: no row's fault, and no row is to be written off
                raise NotNow(0.0) from None

        run = Run(
            found, job.source, Results(job.output, found.sha256), Results(job.errors, found.sha256, by_line), one,
            width=service.width, may_begin=self.is_open, told=bar.told,
        )  # fmt: skip
        started = time.monotonic()
        try:
            await asyncio.to_thread(run.open)
            job.counts = before = run.counts()
            if job.work_s == 0.0:
                job.done = before.completed + max(0, before.failed - len(found.problems))
            if before.left:
                bar.begin(run)
                job.counts = await run.go()
        finally:
            with contextlib.suppress(ColibriError):
                job.counts = run.counts()
            job.computed = job.counts.completed + job.counts.failed - job.done - len(found.problems)
            job.work_s += time.monotonic() - started
            run.close()
            self.progress.close()
        if self._dead is not None:
            raise self._dead


class Bar:
    """How far a job is, in one line: a bar, rows, rows per minute, when it will be done, rows that failed."""

    def __init__(self, name: str, progress: Progress, window: Window | None) -> None:
        self._name, self._progress, self._window = name, progress, window
        self._is_terminal, self._last, self._began, self._first = sys.stderr.isatty(), 0.0, 0.0, 0
        self._forecast = Forecast(0.0)

    def begin(self, run: Run) -> None:
        counts = run.counts()
        self._first = counts.completed + counts.failed
        self._forecast = Forecast(sum(work(group.first.weight) for group in run.pending()))
        self._began = time.monotonic()
        self._last = self._began if not self._is_terminal else 0.0
        self._forecast.begin(self._began)

    def told(self, counts: Counts, groups: list[Group]) -> None:
        """Called in a thread after each write."""
        now = time.monotonic()
        for group in groups:
            self._forecast.note(work(group.first.weight), now)
        if counts.left and now - self._last < (0.2 if self._is_terminal else QUIET_S):
            return
        self._last = now
        self._progress.say_over(self.line(counts, now))

    def line(self, counts: Counts, now: float) -> str:
        done = counts.completed + counts.failed
        share = done / max(1, counts.total)
        rate = 60 * (done - self._first) / max(1e-9, now - self._began)
        parts = [f"{self._name} "] if not self._is_terminal else []
        if self._is_terminal:
            room = max(10, min(30, shutil.get_terminal_size().columns - 60))
            parts.append("[" + "#" * int(room * share) + "-" * (room - int(room * share)) + "] ")
        parts.append(f"{100 * done // max(1, counts.total)}% {done:,}/{counts.total:,} rows, {rate:.0f}/min")
        when = words(self._forecast.left(), datetime.now(), self._window) if counts.left else None
        parts.append(f", {when}" if when else "")
        parts.append(f", {counts.failed:,} failed" if counts.failed else "")
        return "".join(parts)


@contextlib.contextmanager
def ending_by_signal() -> Any:
    """SIGTERM ends the main task as Ctrl-C does: what is answered is written first."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def unreadable(path: Path, error: OSError) -> BadInput:
    """The input cannot be read at all."""
    found = BadInput(f"{path} cannot be read ({error.strerror or 'no more is known'}); give another with -i")
    found.exit_code = 3
    return found
