"""`colibri batch run`: every row of a file, a table or a spool folder, answered here without a server.

    --json: {"jobs": [{"input", "output", "errors", "total", "completed", "failed", "left", "done_before", "seconds",
             "rows_per_minute"}], "golden": {"total", "right", "share"} | null}

Exit code 0: every row has its answer. 1: some are in the error file. 3: the input is no file of rows. Not here: how
rows are answered (batch_work.py), what a table's columns mean (appliance/batches/table.py).
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from appliance.batches import spool
from appliance.batches.golden_file import Golden
from appliance.batches.table import Table, Tagging, labels_of
from appliance.batches.window import Window
from appliance.cli.batch import TABLE
from appliance.cli.batch_work import Job, Workshop, ending_by_signal, unreadable
from appliance.cli.flags import layers, resolved
from engine.errors import ColibriError, UsageError


class QualityDropped(ColibriError):
    """The golden rows came out wrong too often; not one row of the batch was begun."""

    code = "golden_below_minimum"


def run(args: argparse.Namespace) -> int:
    tagging = _checked(args)
    window = Window.parse(args.window) if args.window else None
    golden = Golden.read(args.golden) if args.golden else None
    found = resolved(args)
    found.settings.model_path()  # a wrong path is told before anything is started
    resolve, profile = layers(args)
    shop = Workshop(resolve, profile, window)
    shop.prepare(found)
    try:
        if args.spool:
            jobs = asyncio.run(_spooled(shop, args.spool, golden, args.golden_min))
        else:
            jobs = [_job(args, tagging)]
            asyncio.run(_single(shop, jobs[0], golden, args.golden_min))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("stopped; what is answered is kept, the same command goes on with the rest\n")
        return 130
    if tagging is not None:
        tagging.finish(args.output, jobs[0].output, jobs[0].errors)
    return _told(args, jobs, golden)


def _checked(args: argparse.Namespace) -> Tagging | None:
    """The table to tag, if it is one; raises UsageError for words that contradict each other."""
    if args.spool:
        if args.input or args.output or args.errors or any(getattr(args, name) for name in TABLE):
            raise UsageError("--spool works off a folder; leave -i, -o, --errors and a table's options out")
        return None
    if args.input is None or args.output is None:
        raise UsageError("say which file and where to: colibri batch run -i in.jsonl -o out.jsonl")
    if args.output.resolve() == args.input.resolve():
        raise UsageError(f"-i and -o are the same file {args.input}; the answers need a file of their own")
    if not 0 <= args.golden_min <= 1:
        raise UsageError(f"--golden-min {args.golden_min}: a share from 0 to 1 is meant")
    is_table = args.input.suffix.lower() in (".csv", ".tsv")
    given = [name for name in TABLE if getattr(args, name)]
    if not is_table:
        if given:
            flag = "--" + given[0].replace("_", "-")
            raise UsageError(f"{flag} belongs to a table, and {args.input} is none by its name (.csv or .tsv)")
        return None
    for name in TABLE[:3]:
        if not getattr(args, name):
            raise UsageError(f"a table needs --{name.replace('_', '-')}; see colibri batch --help")
    try:
        table = Table.read(args.input)
        instruction = args.instruction_file.read_text("utf-8-sig").strip()
    except OSError as error:
        raise unreadable(Path(error.filename or args.input), error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{args.instruction_file} is not UTF-8 text") from None
    if not instruction:
        raise UsageError(f"{args.instruction_file} is empty; write there what the labels mean")
    return Tagging(table, args.text_column, args.id_column, labels_of(args.labels), instruction)


def _job(args: argparse.Namespace, tagging: Tagging | None) -> Job:
    folder = args.output.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for the answers; make it first")
    if tagging is None:
        errors = args.errors or args.output.with_name(args.output.name + ".errors.jsonl")
        return Job(args.input, args.output, errors)
    rows, answers, errors = tagging.beside(args.output)
    tagging.write_rows(rows)
    return Job(rows, answers, args.errors or errors, (args.input, args.output))


async def _single(shop: Workshop, job: Job, golden: Golden | None, least: float) -> None:
    found = await asyncio.to_thread(shop.look, job)
    with ending_by_signal():
        while True:
            await shop.opening()
            async with shop.engine() as service:
                if golden is not None and golden.right is None:
                    await _judge(golden, least, service)
                await shop.answer(job, found, service)
            if not job.counts.left:
                return


async def _spooled(shop: Workshop, folder: Path, golden: Golden | None, least: float) -> list[Job]:
    """Every file of the folder, the oldest first, until there is none; files may be added meanwhile."""
    done: list[Job] = []
    place = spool.Spool(folder)
    with ending_by_signal():
        while await asyncio.to_thread(place.oldest) is not None:
            await shop.opening()
            async with shop.engine() as service:
                if golden is not None and golden.right is None:
                    await _judge(golden, least, service)
                while shop.is_open() and (source := await asyncio.to_thread(place.oldest)) is not None:
                    job = Job(source, place.output(source), place.errors(source))
                    try:
                        found = await asyncio.to_thread(shop.look, job)
                        await shop.answer(job, found, service)
                    except ColibriError as error:
                        if error.exit_code not in (2, 3):
                            raise
                        await asyncio.to_thread(place.refuse, source, error.message)
                        sys.stderr.write(f"colibri: {source.name}: {error.message}\n")
                        job.refused = error.message
                        done.append(job)
                        continue
                    if not job.counts.left:
                        await asyncio.to_thread(place.finish, source)
                        done.append(job)
    return done


async def _judge(golden: Golden, least: float, service: Any) -> None:
    """Ask the golden rows; raises QualityDropped."""
    share = await golden.judge(service.ask)
    if share < least:
        raise QualityDropped(
            f"only {golden.right} of {golden.total} golden rows came out as expected, {least:.0%} are asked for, so no "
            f"row was begun; the first that differs is {golden.first_wrong}. Look at model, profile and instruction"
        )


def _told(args: argparse.Namespace, jobs: list[Job], golden: Golden | None) -> int:
    if args.json:
        print(json.dumps({"jobs": [job.summary() for job in jobs], "golden": golden and golden.summary()}))
    for job in jobs:
        c = job.counts
        if job.refused is None:
            rate = job.summary()["rows_per_minute"]
            where = f"; see {job.errors}" if c.failed else ""
            again = f", {job.done:,} of them before" if job.done else f", {rate} rows per minute" if rate else ""
            text = f"{job.title}: {c.completed:,} of {c.total:,} rows answered{again}, {c.failed:,} failed{where}"
            sys.stderr.write(text + "\n")
    if any(job.refused for job in jobs):
        return 3
    return 1 if any(job.counts.failed for job in jobs) else 0
