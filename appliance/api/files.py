"""/v1/files in OpenAI's shape: uploads for batches, their results, their bytes. Not here: what a batch makes of them.

Everybody sees the files of the key that stored them; the admin key sees all.
"""

import asyncio
import os
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from appliance.api.body import READ_TIMEOUT_S
from appliance.api.errors import InvalidJson, MissingParameter, TooLarge, TooSlow, UnsupportedParameter
from appliance.api.query import known_only, whole, word
from appliance.api.services import IS_ADMIN, KEY_NAME, SERVICES
from appliance.batches.results import CannotStore
from appliance.batches.rows import Caps
from engine.errors import InvalidParameter, RequestError

MOST_BYTES = Caps().bytes
PURPOSES = ("batch", "batch_output")
MAX_NAME = 255
PIECE = 1 << 20
BROKEN = (HttpProcessingError, web.RequestPayloadError, ValueError, LookupError, TypeError, AssertionError, EOFError,
          RuntimeError)  # fmt: skip
"""What aiohttp's reader of forms raises where a form is none; most of it is meant for programmers."""


class NoSuchFile(RequestError):
    status, code = 404, "file_not_found"


async def upload(request: web.Request) -> web.Response:
    """A multipart body with `purpose` and `file`, in any order; the bytes go to the disk as they come."""
    library = request.app[SERVICES].batches.shelf
    if request.content_type != "multipart/form-data":
        raise InvalidParameter("the body is no form; send multipart/form-data with file and purpose", param="file")
    if (request.content_length or 0) > MOST_BYTES + PIECE:
        raise TooLarge(f"the file is larger than the {MOST_BYTES:,} bytes this server takes; split it")
    draft = await library.call(library.draft, request.content_length or 0)
    try:
        name, purpose, size = await _form(request, draft)
        if purpose != "batch":
            raise InvalidParameter("purpose is 'batch' here; files for other purposes are not taken", param="purpose")
        doc = await library.keep(draft, request[KEY_NAME], name, purpose, size)
    finally:
        await asyncio.to_thread(draft.unlink, True)
    return web.json_response(_public(doc))


async def many(request: web.Request) -> web.Response:
    """A page of the list."""
    known_only(request, "purpose", "limit", "after", "order")
    services = request.app[SERVICES]
    limit = whole(request, "limit", 1000, 1, 10_000) or 1000
    oldest_first = word(request, "order", "desc", ("asc", "desc")) == "asc"
    after, purpose = request.query.get("after"), request.query.get("purpose")
    docs = await services.batches.shelf.files(owner_of(request), limit + 1, after, purpose, oldest_first)
    return web.json_response(listed([_public(doc) for doc in docs], limit))


async def one(request: web.Request) -> web.Response:
    return web.json_response(_public(await _found(request)))


async def content(request: web.Request) -> web.StreamResponse:
    """The bytes, as they are."""
    doc = await _found(request)
    path = request.app[SERVICES].batches.shelf.path(doc)
    if not await asyncio.to_thread(path.is_file):
        raise NoSuchFile("the file's bytes are not there any more")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in doc["filename"])
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return web.FileResponse(path, headers={"Content-Type": "application/jsonl", **disposition})


async def delete(request: web.Request) -> web.Response:
    doc = await _found(request)
    await request.app[SERVICES].batches.shelf.delete(doc)
    return web.json_response({"id": doc["id"], "object": "file", "deleted": True})


def owner_of(request: web.Request) -> str | None:
    """Whose things this request may see; None for all."""
    name: str = request[KEY_NAME]
    return None if request[IS_ADMIN] else name


def listed(docs: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A page of OpenAI's, of `limit` documents and, if there are more, one beyond."""
    shown = docs[:limit]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    return {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": len(docs) > limit}


async def _found(request: web.Request) -> dict[str, Any]:
    doc = await request.app[SERVICES].batches.shelf.file(request.match_info["id"], owner_of(request))
    if doc is None:
        raise NoSuchFile("there is no file of that id; GET /v1/files lists them")
    return doc


def _public(doc: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in doc.items() if key not in ("owner", "path")}


async def _form(request: web.Request, draft: Path) -> tuple[str, str, int]:
    """(file name, purpose, bytes) of the form, the bytes being written to the draft."""
    name = purpose = None
    size = 0
    try:
        async with asyncio.timeout(None) as clock:
            loop = asyncio.get_running_loop()
            clock.reschedule(loop.time() + READ_TIMEOUT_S)
            parts = await request.multipart()
            while (part := await parts.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name not in ("file", "purpose"):
                    raise UnsupportedParameter("the form has a part nobody reads; send file and purpose")
                if part.name == "purpose":
                    purpose = (await part.read_chunk(64)).decode("utf-8", "replace")
                    if await part.read_chunk(64):
                        raise InvalidParameter("purpose is 'batch' here", param="purpose")
                    continue
                if name is not None:
                    raise InvalidParameter("the form has two files; send one", param="file")
                name = (part.filename or "file.jsonl")[:MAX_NAME].encode("utf-8", "replace").decode()
                with await asyncio.to_thread(draft.open, "wb") as file:
                    while piece := await part.read_chunk(PIECE):
                        clock.reschedule(loop.time() + READ_TIMEOUT_S)
                        size += len(piece)
                        if size > MOST_BYTES:
                            raise TooLarge(
                                f"the file is larger than the {MOST_BYTES:,} bytes this server takes; split it"
                            )
                        await asyncio.to_thread(_write, file, piece)
                    await asyncio.to_thread(os.fsync, file.fileno())
    except TimeoutError:
        raise TooSlow(f"no byte of the file came for {READ_TIMEOUT_S:.0f} s; send it again in one go") from None
    except OSError as error:
        raise CannotStore(f"the file cannot be stored ({error.strerror}); free space") from None
    except BROKEN:
        raise InvalidJson("the body is no well-formed multipart form; send file and purpose") from None
    for field, value in (("file", name), ("purpose", purpose)):
        if value is None:
            raise MissingParameter(f"the form has no {field}; send file and purpose", param=field)
    return str(name), str(purpose), size


def _write(file: BinaryIO, piece: bytes) -> None:
    file.write(piece)
    file.flush()
