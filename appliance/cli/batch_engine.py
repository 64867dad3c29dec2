"""The whole service for one program alone, without a port: what works over HTTP works here, by the same code.

Its folder of data is a temporary one, so that it neither needs nor touches a service's. Not here: rows, jobs.
"""

import asyncio
import contextlib
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.api.app import make_app
from appliance.api.rows import Rows
from appliance.api.serve import BACKLOG, First, listening, running
from appliance.api.services import Services
from appliance.batches.rows import Row
from appliance.batches.run import NotNow, Outcome
from appliance.keys import open_keys
from appliance.profiles import ProfileStore
from appliance.swaps.journal import Journal
from appliance.swaps.prepare import Prepared, Resolve
from engine.errors import EngineDown, UsageError

WAIT_S = 86_400.0
"""Nobody looks at a row while it waits."""
LOOK_S = 0.1
"""Between two looks at how far the engine has loaded."""
Progress = Callable[[str, int, int, str], None]


@dataclass(slots=True)
class BatchEngine:
    """A service that is ready, asked row by row."""

    _services: Services
    _rows: Rows

    def width(self) -> int:
        return self._rows.width()

    async def answer(self, created: int, sha256: str, row: Row, is_drawn: bool) -> Outcome:
        """Raises NotNow while nobody can answer, EngineDown or why there is no engine when nobody ever will."""
        try:
            return await self._rows.answer({"created_at": created}, sha256, row, is_drawn)
        except NotNow:
            if self._services.supervisor.state in ("crashed", "stopped"):
                raise self._services.supervisor.error or EngineDown("the engine has stopped") from None
            raise

    async def ask(self, url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of a question that belongs to no file."""
        found = await self.answer(0, "", Row(0, "", url, body), is_drawn=False)
        return found.status, found.body


@contextlib.asynccontextmanager
async def batch_engine(
    prepared: Prepared, store: ProfileStore, resolve: Resolve, progress: Progress
) -> AsyncIterator[BatchEngine]:
    """Start it and wait until the engine is ready; raises what the start cannot do."""
    settings = prepared.settings
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="colibri-")))
        own = {
            "data_dir": folder, "api_key": None, "api_key_file": None, "no_auth": False, "handover": None,
            "max_queue": max(64, settings.max_queue), "queue_timeout": WAIT_S,
        }  # fmt: skip
        prepared = replace(prepared, settings=settings.model_copy(update=own))
        open_keys(folder)  # made here, since a service that makes its keys shows them
        begin = First(prepared, store, Journal(folder), resolve)
        door = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            door.bind(f"\0colibri-{secrets.token_hex(16)}")
            door.listen(BACKLOG)
        except OSError as error:
            raise UsageError(f"this system allows no socket between two processes ({error.strerror})") from None
        door.setblocking(False)
        async with running(begin) as services, listening(make_app(services), door):
            await _ready(services, progress)
            rows = services.batches.engine
            assert isinstance(rows, Rows)
            yield BatchEngine(services, rows)


async def _ready(services: Services, progress: Progress) -> None:
    """Wait for the engine, telling how far it is; raises why there will be none."""
    supervisor = services.supervisor
    while supervisor.state != "ready":
        if supervisor.state in ("crashed", "stopped"):
            raise supervisor.error or EngineDown("the engine has stopped")
        if (at := supervisor.progress) is not None:
            progress(at["stage"], at["done"], at["total"], at["note"])
        await asyncio.sleep(LOOK_S)
