"""Answers a batch's rows by asking this service itself, over a socket without a name in the file system.

So a row meets what a client's request meets: the same checks, lanes, queue and routes. Not here: which rows.

What an answer says of its moment (times, ids, cached tokens) is set to what follows from the row alone, so that a batch
run twice gives the same bytes.
"""

import json
import secrets
from typing import Any

import aiohttp

from appliance.api.fields import parse
from appliance.api.services import Services
from appliance.batches.job import Doc
from appliance.batches.record import request_id
from appliance.batches.results import MICRO
from appliance.batches.rows import Row
from appliance.batches.run import NotNow, Outcome
from engine.errors import RequestError

PREFIXES = {"/v1/chat/completions": "chatcmpl", "/v1/completions": "cmpl"}
NOT_NOW = (408, 409, 429, 502, 503)
AGAIN_S, LONGEST_AGAIN_S = 0.5, 30.0


class Rows:
    """The executor's engine. Use it as an async context; `path` is where to listen, `secret` the key that opens it."""

    def __init__(self, services: Services, secret: str) -> None:
        self.path = f"\0colibri-rows-{secrets.token_hex(16)}"
        self._services = services
        self._secret = secret
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Rows":
        # A connection for each row: one that is kept could be closed by the other end just when it is used again.
        connector = aiohttp.UnixConnector(self.path, limit=0, force_close=True)
        headers = {"Authorization": f"Bearer {self._secret}", "x-colibri-lane": "batch"}
        timeout = aiohttp.ClientTimeout(total=None)
        self._client = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def serves(self) -> tuple[str | None, str]:
        return self._services.swapper.in_force.name, self._services.model.id

    def width(self) -> int:
        """Half as many rows again as the engine takes at once, so that none of its places waits for the next."""
        slots = int(self._services.supervisor.info.get("n_parallel") or 1)
        return min(MICRO, slots + (slots + 1) // 2)

    def fingerprint(self) -> str:
        return self._services.fingerprint()

    def check(self, url: str, body: dict[str, Any]) -> None:
        check(url, body)

    async def answer(self, job: Doc, sha256: str, row: Row, is_drawn: bool) -> Outcome:
        """Ask; raises NotNow while nobody can answer."""
        assert self._client is not None
        name = request_id(sha256, row.line)
        body = dict(row.body)
        if row.url in PREFIXES and body.get("seed") is None:
            body["seed"] = int(name[:8] if is_drawn else row.digest.hex()[:8], 16)
        headers = {"X-Request-Id": f"req_{name}"}
        try:
            async with self._client.post(f"http://localhost{row.url}", json=body, headers=headers) as reply:
                found = json.loads(await reply.read())
                status, after = reply.status, reply.headers.get("retry-after-ms", "")
        except (aiohttp.ClientError, ValueError):
            return Outcome(500, {"error": {"code": "internal_error", "message": "the server gave no answer"}}, True)
        ours = found.get("colibri")
        # A row that waited through a change of profile was judged, or answered, by a model that is not the batch's.
        is_foreign = job.get("model") not in (None, self._services.model.id)
        if is_foreign or status in NOT_NOW or (isinstance(ours, dict) and "handoff" in ours):
            raise NotNow(min(LONGEST_AGAIN_S, float(after) / 1000 if after.isdecimal() else AGAIN_S))
        return Outcome(status, settled(found, row.url, name, job["created_at"]), is_broken=status >= 500)


def check(url: str, body: dict[str, Any]) -> None:
    """Raise what a body of this route would meet whatever the model."""
    from appliance.api.routes import ROUTES  # it imports the handlers, and they what is here

    model = next((route.body for route in ROUTES if (route.method, route.path) == ("POST", url)), None)
    if model is None:
        raise RequestError(f"{url} is not served by this version")
    parse(model, body)


def settled(body: dict[str, Any], url: str, name: str, created: int) -> dict[str, Any]:
    """An answer without what differs from one run to the next."""
    body = {key: value for key, value in body.items() if key != "timings"}
    if "id" in body:
        body["id"] = f"{PREFIXES.get(url, 'row')}-{name}"
    if "created" in body:
        body["created"] = created
    if isinstance(usage := body.get("usage"), dict):
        body["usage"] = {key: value for key, value in usage.items() if key != "prompt_tokens_details"}
    if isinstance(ours := body.get("colibri"), dict):
        body["colibri"] = {key: value for key, value in ours.items() if not key.endswith("_ms")}
    return body
