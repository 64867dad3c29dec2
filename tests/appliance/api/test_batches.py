"""/v1/files and /v1/batches with openai's own client: states, counts, errors, cancel, restart, windows, owners."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types import Batch

from tests.appliance.api.service import Service, service
from tests.appliance.batches.test_rows import row

pytestmark = pytest.mark.asyncio(loop_scope="module")
MODEL = "tiny/model:q4"
SOON_S = 60.0


CLIENTS: list[openai.AsyncOpenAI] = []
"""All are closed in the end: one that is only forgotten closes its sockets behind the event loop's back, which then
does not see the next socket of that number."""


def client(running: Service, key: str | None = None) -> openai.AsyncOpenAI:
    CLIENTS.append(openai.AsyncOpenAI(base_url=running.base + "/v1", api_key=key or running.user, max_retries=0))
    return CLIENTS[-1]


def lines(*given: object) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in given)


def good(n: int, **body: Any) -> list[dict[str, Any]]:
    return [row(f"r{i}", f"say {i}", model=MODEL, max_tokens=4, **body) for i in range(n)]


async def begin(api: openai.AsyncOpenAI, data: bytes, **metadata: str) -> Batch:
    file = await api.files.create(file=("rows.jsonl", data), purpose="batch")
    return await api.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata=metadata or None
    )


async def until(api: openai.AsyncOpenAI, name: str, holds: Callable[[Batch], bool]) -> Batch:
    end = time.monotonic() + SOON_S
    while not holds(batch := await api.batches.retrieve(name)):
        assert time.monotonic() < end, batch
        await asyncio.sleep(0.02)
    return batch


def ended(batch: Batch) -> bool:
    return batch.status in ("completed", "failed", "expired", "cancelled")


async def records(api: openai.AsyncOpenAI, name: str | None) -> list[dict[str, Any]]:
    if name is None:
        return []
    return [json.loads(line) for line in (await api.files.content(name)).content.splitlines()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with service(tmp_path_factory.mktemp("batches"), options={"n_parallel": 2}) as found:
        yield found
        for api in CLIENTS:
            await api.close()


async def test_a_batch_is_answered_with_stock_client_calls(running: Service) -> None:
    api = client(running)
    batch = await begin(api, lines(*good(5), row("long", "word " * 3000, model=MODEL), row("odd", model="nope")))
    assert batch.status == "validating" and batch.completion_window == "24h"
    batch = await until(api, batch.id, ended)
    assert batch.status == "completed" and batch.errors is None
    assert batch.request_counts is not None and batch.request_counts.model_dump() == {
        "total": 7, "completed": 5, "failed": 2,
    }  # fmt: skip
    assert batch.in_progress_at and batch.finalizing_at and batch.completed_at and batch.model == MODEL
    found = {one["custom_id"]: one for one in await records(api, batch.output_file_id)}
    assert found.keys() == {f"r{i}" for i in range(5)}
    answer = found["r3"]["response"]
    assert answer["status_code"] == 200 and answer["body"]["object"] == "chat.completion"
    assert answer["body"]["created"] == batch.created_at and "timings" not in answer["body"]
    bad = {one["custom_id"]: one for one in await records(api, batch.error_file_id)}
    assert bad["odd"]["response"]["status_code"] == 404 and bad["odd"]["error"]["code"] == "model_not_found"
    assert bad["long"]["error"]["code"] == "context_length_exceeded" and bad["long"]["error"]["line"] == 6
    assert batch.usage is not None and batch.usage.output_tokens == 4 * 5


async def test_bad_lines_are_told_by_number_and_the_good_ones_answered(running: Service) -> None:
    api = client(running)
    hot = row("hot", model=MODEL, temperature="hot")
    batch = await begin(api, lines(*good(2), b"{", hot, {**row("x"), "url": "/v1/embeddings"}, b"null"))
    batch = await until(api, batch.id, ended)
    assert batch.status == "completed" and batch.errors is not None and batch.errors.data is not None
    assert [error.line for error in batch.errors.data] == [3, 4, 5, 6]
    assert batch.errors.data[1].param == "body.temperature"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 4)
    assert [one["error"]["line"] for one in await records(api, batch.error_file_id)] == [3, 4, 5, 6]


@pytest.mark.parametrize(("data", "words"), [(b"", "no rows"), (b"{\n[]\n", "none of the file's 2 lines")])
async def test_a_file_without_a_good_row_fails_and_says_why(running: Service, data: bytes, words: str) -> None:
    api = client(running)
    batch = await until(api, (await begin(api, data)).id, ended)
    assert batch.status == "failed" and batch.failed_at and batch.errors is not None and batch.errors.data
    assert words in (batch.errors.data[0].message or "") or batch.errors.data[0].line == 1


async def test_files_are_listed_read_and_deleted(running: Service) -> None:
    api = client(running)
    made = [await api.files.create(file=(f"f{i}.jsonl", b"x%d\n" % i), purpose="batch") for i in range(3)]
    assert made[0].bytes == 3 and made[0].filename == "f0.jsonl" and made[0].purpose == "batch"
    first = await api.files.list(limit=2, purpose="batch")
    assert [one.id for one in first.data] == [made[2].id, made[1].id] and first.has_more
    second = await api.files.list(limit=2, purpose="batch", after=made[1].id)
    assert second.data[0].id == made[0].id
    assert (await api.files.content(made[1].id)).content == b"x1\n"
    assert (await api.files.delete(made[1].id)).deleted
    for ask in (api.files.retrieve(made[1].id), api.files.content(made[1].id), api.files.delete(made[1].id)):
        with pytest.raises(openai.NotFoundError):
            await ask


async def test_what_one_key_stores_no_other_sees_but_the_admin_key(running: Service) -> None:
    stranger = running.services.keys.internal("stranger")
    batch = await begin(client(running), lines(*good(1)))
    file = batch.input_file_id
    for ask in (
        client(running, stranger).batches.retrieve(batch.id), client(running, stranger).batches.cancel(batch.id),
        client(running, stranger).files.content(file),
    ):  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            await ask
    assert not (await client(running, stranger).batches.list()).data
    with pytest.raises(openai.NotFoundError):
        await client(running, stranger).batches.create(
            input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"
        )
    assert (await client(running, running.admin).batches.retrieve(batch.id)).id == batch.id
    await until(client(running), batch.id, ended)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"completion_window": "1h"}, "completion_window"), ({"endpoint": "/v1/models"}, "endpoint"),
        ({"metadata": {"colibri_window": "late"}}, "22:00-06:00"),
        ({"metadata": {"colibri_night": "2"}}, "nobody reads"),
        ({"metadata": {"colibri_expires_hours": "soon"}}, "a number over 0"),
    ],
)  # fmt: skip
async def test_what_cannot_be_a_batch_is_refused(running: Service, changes: dict[str, Any], words: str) -> None:
    api = client(running)
    file = await api.files.create(file=("a.jsonl", lines(*good(1))), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **changes}
    status, answer, _ = await running.call("POST", "/v1/batches", body)
    assert status == 400 and words in json.dumps(answer)


async def test_forms_that_are_none_are_refused(running: Service) -> None:
    for data, kind in (
        (b"{}", "application/json"), (b"", "multipart/form-data"), (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"--x--\r\n", "multipart/form-data; boundary=x"), (b"zzz", "multipart/form-data; boundary=x"),
    ):  # fmt: skip
        status, answer, _ = await running.call("POST", "/v1/files", data, Content_Type=kind)
        assert status == 400 and answer["error"]["message"], kind
    with pytest.raises(openai.BadRequestError, match="purpose"):
        await client(running).files.create(file=("a", b"x"), purpose="assistants")


async def test_a_cancel_keeps_what_is_answered_counts_every_row_and_may_be_repeated(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.03}) as running:
        api = client(running)
        waiting = await begin(api, lines(*good(3)))
        batch = await begin(api, lines(*good(40)))
        await until(api, waiting.id, ended)
        await until(api, batch.id, lambda b: b.request_counts is not None and b.request_counts.completed >= 2)
        with pytest.raises(openai.BadRequestError, match="not finished"):
            await api.files.delete(batch.input_file_id)
        second = await begin(api, lines(*good(2)))
        assert (await api.batches.cancel(second.id)).status == "cancelling"
        for _ in range(2):
            assert (await api.batches.cancel(batch.id)).status in ("cancelling", "cancelled")
        batch = await until(api, batch.id, ended)
        assert batch.status == "cancelled" and batch.request_counts is not None
        counts = batch.request_counts
        assert counts.completed >= 2 and counts.failed > 0 and counts.completed + counts.failed == counts.total == 40
        done, left = await records(api, batch.output_file_id), await records(api, batch.error_file_id)
        assert len({one["custom_id"] for one in done + left}) == 40
        assert {one["error"]["code"] for one in left} == {"batch_cancelled"}
        assert (await until(api, second.id, ended)).status == "cancelled"
        assert (await api.batches.cancel(batch.id)).status == "cancelled", "after the end it changes nothing"
        page = await api.batches.list(limit=2)
        assert [one.id for one in page.data] == [second.id, batch.id] and page.has_more


async def test_a_restart_goes_on_and_gives_the_bytes_of_a_run_without_one(tmp_path: Path) -> None:
    data = lines(*good(20, temperature=0.9), b"[]")
    async with service(tmp_path, options={"step_s": 0.02}) as running:
        api = client(running)
        batch = await begin(api, data)
        await until(api, batch.id, lambda b: b.request_counts is not None and b.request_counts.completed >= 3)
    async with service(tmp_path) as running:
        api = client(running)
        whole = await begin(api, data)
        cut, whole = await until(api, batch.id, ended), await until(api, whole.id, ended)
        assert cut.status == whole.status == "completed" and cut.request_counts == whole.request_counts
        found = [await records(api, name) for name in (cut.output_file_id, whole.output_file_id)]
        for one in found:
            one.sort(key=lambda record: record["custom_id"])
            for record in one:
                record["response"]["body"].pop("created")
        assert found[0] == found[1] and len(found[0]) == 20


async def test_outside_its_hours_and_under_another_profile_a_batch_waits_and_says_so(running: Service) -> None:
    api = client(running)
    now = time.localtime()
    closed = f"{(now.tm_hour + 3) % 24:02}:00-{(now.tm_hour + 4) % 24:02}:00"
    shut = await begin(api, lines(*good(2)), colibri_window=closed)
    other = await begin(api, lines(*good(2)), colibri_profile="batch-tag")
    free = await begin(api, lines(*good(2)), colibri_window="00:00-00:00")
    assert (await until(api, free.id, ended)).status == "completed", "the ones that wait are in nobody's way"
    for batch, words in ((shut, closed), (other, "the profile batch-tag")):
        found = await until(api, batch.id, lambda b: b.status == "in_progress")
        assert found.model_extra is not None and words in found.model_extra["colibri"]["waits"]
        await api.batches.cancel(batch.id)
        assert (await until(api, batch.id, ended)).status == "cancelled"


async def test_a_batch_is_held_while_too_few_rows_with_known_answers_come_out_right(running: Service) -> None:
    api = client(running)
    rows = [{**one, "expected": "hell" if i < 8 else "other"} for i, one in enumerate(good(10))]
    file = await api.files.create(file=("golden.jsonl", lines(*rows)), purpose="batch")
    held = await begin(api, lines(*good(3)), colibri_golden=file.id)
    fine = await begin(api, lines(*good(3)), colibri_golden=file.id, colibri_golden_share="0.8")
    lost = await begin(api, lines(*good(3)), colibri_golden="file-none")
    assert (await until(api, fine.id, ended)).status == "completed"
    found = await until(api, held.id, lambda b: "held" in json.dumps(b.model_extra))
    assert found.model_extra is not None and found.model_extra["colibri"]["waits"] == (
        "held: 8 of 10 rows with known answers came out right, 0.9 of them must; the first wrong one is r8"
    )
    assert (await until(api, lost.id, ended)).status == "failed"
    await api.batches.cancel(held.id)
    assert (await until(api, held.id, ended)).status == "cancelled"


async def test_a_batch_whose_time_is_over_keeps_what_it_has(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.05}) as running:
        api = client(running)
        batch = await begin(api, lines(*good(200)), colibri_expires_hours=str(1.5 / 3600))
        batch = await until(api, batch.id, ended)
        assert batch.status == "expired" and batch.expired_at and batch.request_counts is not None
        counts = batch.request_counts
        assert 0 < counts.completed < 200 and counts.completed + counts.failed == 200
        assert {one["error"]["code"] for one in await records(api, batch.error_file_id)} == {"batch_expired"}


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; '
    b'name="file"; filename="a.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n{"a":1}\n\r\n--x--\r\n'
)
PIECES = (b"Content-Transfer-Encoding: base64\r\n", b"Content-Encoding: gzip\r\n", b"\r\n--x\r\n", b"\r\n\r\n",
          b"Content-Length: 99999\r\n", b"Content-Type: multipart/mixed; boundary=y\r\n")  # fmt: skip


@pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionHeader")
@pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionParam")
async def test_damaged_forms_are_refused_or_read_and_leave_nothing_behind(running: Service) -> None:
    """Of 1,500 such forms 863 were answered with status 500, since aiohttp's reader raises whatever it meets."""
    dice, seen = random.Random(3), set()
    for _ in range(300):
        form = bytearray(FORM)
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(form))
            match dice.randrange(4):
                case 0:
                    form[at] = dice.randrange(256)
                case 1:
                    del form[at : at + dice.randrange(30)]
                case 2:
                    form[at:at] = bytes(dice.randrange(256) for _ in range(dice.randrange(8)))
                case _:
                    form[at:at] = dice.choice(PIECES)
        status, answer, _ = await running.call(
            "POST", "/v1/files", bytes(form), Content_Type="multipart/form-data; boundary=x"
        )
        assert status == 200 or (status == 400 and answer["error"]["message"]), bytes(form)
        seen.add(status)
    assert seen == {200, 400}
    assert not list((running.services.batches.shelf.folder / "files").glob(".draft-*"))
