"""Request bodies: read under a cap and a time limit. Not here: what JSON is taken (strict_json.py), which fields."""

import asyncio
from typing import Any

from aiohttp import web

from appliance.api.errors import InvalidJson, TooLarge, TooSlow
from appliance.strict_json import parse_object

READ_TIMEOUT_S = 60.0
"""Longest pause between two pieces of a body."""


def body_cap(n_ctx: int) -> int:
    """Most bytes of a body: enough for a full context of long words written as JSON escapes, and never below 8 MiB."""
    return max(8 * 1024 * 1024, 64 * n_ctx)


async def read_body(request: web.Request, cap: int) -> bytes:
    """All bytes of the body, decompressed; raises TooLarge before reading more than `cap`."""
    refusal = TooLarge(f"the body is larger than the {cap} bytes this server takes; send a shorter prompt")
    if (request.content_length or 0) > cap:
        raise refusal
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                piece = await request.content.readany()
        except TimeoutError:
            raise TooSlow(f"no byte of the body came for {READ_TIMEOUT_S:.0f} s; send it again in one go") from None
        except web.RequestPayloadError:
            raise InvalidJson("the body does not match its Content-Encoding or Transfer-Encoding") from None
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > cap:
            raise refusal
        pieces.append(piece)


async def read_object(request: web.Request, cap: int) -> tuple[dict[str, Any], bytes]:
    """The body as a JSON object, and its bytes."""
    raw = await read_body(request, cap)
    return parse_object(raw), raw
