"""Asks the service over HTTP with the admin key: one session, short time-outs, events as they come. Not here: when.

aiohttp is imported at the first question, after the first paint: it takes a quarter of a second.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tui.words import plain

if TYPE_CHECKING:
    import aiohttp

STATE_TIMEOUT_S = 3.0
TIMEOUT_S = 30.0
HEARTBEAT_S = 25.0  # the service sends a comment every 10 s; two lost ones and the stream is dead
MOST_BYTES = 16 << 20


class ClientError(Exception):
    """The service said no, or nothing. `status` 0: no answer; else HTTP's, with the code and facts of its error."""

    def __init__(self, status: int, code: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.facts: Mapping[str, Any] = facts or {}


class Client:
    """One service. Each method gives the answer's JSON object, an empty one where there is no body."""

    def __init__(self, url: str, key: str = "", user: str = "") -> None:
        self.url = url.rstrip("/")
        self.key = key
        self.user = user
        self._session: aiohttp.ClientSession | None = None

    async def state(self) -> dict[str, Any]:
        """GET /admin/state; a service that hangs counts as gone after three seconds."""
        return await self._ask("GET", "/admin/state", timeout_s=STATE_TIMEOUT_S)

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        return await self._ask("GET", path, params=params)

    async def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._ask("POST", path, body, headers)

    async def put(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._ask("PUT", path, body, headers)

    async def delete(self, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._ask("DELETE", path, None, headers)

    async def events(self, last: str = "") -> AsyncIterator[dict[str, Any]]:
        """GET /admin/events from after `last` on: the data of each event, with its `id` and `kind`, until it ends."""
        import aiohttp

        headers = self._headers({"Last-Event-ID": last} if last else {})
        timeout = aiohttp.ClientTimeout(total=None, connect=STATE_TIMEOUT_S, sock_read=HEARTBEAT_S)
        try:
            async with self._open().get(f"{self.url}/admin/events", headers=headers, timeout=timeout) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await _whole(answer))
                name, number, data = "", "", ""
                async for raw in answer.content:
                    line = raw.decode("utf-8", "replace").rstrip("\r\n")
                    if not line:
                        if data or name:
                            yield _event(name, number, data)
                        name, data = "", ""
                    elif line.startswith("event:"):
                        name = line[6:].strip()
                    elif line.startswith("id:"):
                        number = line[3:].strip()
                    elif line.startswith("data:"):
                        data += line[5:].strip()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ClientError(0, "no_answer", _words(error)) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None or self._session.closed:
            # No proxy from the environment: the address is a machine of ours, and the key must not reach another.
            self._session = aiohttp.ClientSession(trust_env=False)
        return self._session

    def _headers(self, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = dict(more or {})
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.user:
            headers["X-Colibri-User"] = quote(self.user, safe=" @.-_")
        return headers

    async def _ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *,
        params: Mapping[str, str | int] | None = None, timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:  # fmt: skip
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=STATE_TIMEOUT_S)
        try:
            async with self._open().request(
                method, self.url + path, json=body, headers=self._headers(headers), params=params, timeout=timeout,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                raw = await _whole(answer)
                if answer.status >= 300:
                    raise _refusal(answer.status, raw)
                return _object(raw) if raw.strip() else {}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClientError(0, "no_answer", _words(error, timeout_s)) from None
        except ValueError as error:
            raise ClientError(0, "no_answer", f"this is no address: {plain(str(error))}") from None


async def _whole(answer: "aiohttp.ClientResponse") -> bytes:
    """The body, up to a size that no document of the service has."""
    raw = bytearray()
    async for part in answer.content.iter_chunked(65536):
        raw += part
        if len(raw) > MOST_BYTES:
            raise ClientError(0, "odd_answer", f"the answer is larger than {MOST_BYTES >> 20} MiB")
    return bytes(raw)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ClientError(0, "odd_answer", f"the answer is no JSON object: {plain(repr(raw[:60]))}")
    return value


def _refusal(status: int, raw: bytes) -> ClientError:
    try:
        error = json.loads(raw)["error"]
        message, code = str(error["message"]), str(error.get("code") or status)
        facts = {key: error[key] for key in error if key not in ("message", "code")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message, code, facts = f"the service answered {status} without a reason", str(status), {}
    return ClientError(status, code, plain(message), facts)


def _event(name: str, number: str, data: str) -> dict[str, Any]:
    try:
        value = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        value = {}
    event = value if isinstance(value, dict) else {}
    return {"kind": name, "id": number, **event} if name != "gap" else {**event, "kind": "gap", "id": number}


def _words(error: BaseException, timeout_s: float = STATE_TIMEOUT_S) -> str:
    """What went wrong with the line, in a few words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:.0f} s"
    inner = getattr(error, "os_error", None) or error
    words = getattr(inner, "strerror", None) or str(inner) or type(error).__name__
    return plain(words).lower() if "connect call failed" not in words.lower() else "connection refused"
