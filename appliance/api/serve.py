"""`colibri serve`: from settings to a listening server and back down. Not here: routes, the command line.

Order of the start: the port (taken: exit 5), the file and its plan (bad: 3, too large: 4), the keys, then the socket
answers while the engine loads. On SIGTERM or SIGINT: no new requests, DRAIN_S for those under way, then the end; a
second signal ends the draining.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import web

from appliance import key_watch, logs
from appliance.api import heap, tls
from appliance.api.app import make_app
from appliance.api.body import body_cap
from appliance.api.errors import Draining
from appliance.api.protocol import LIMITS, Connection
from appliance.api.rows import Rows
from appliance.api.services import SERVICES, Services, admit
from appliance.batches.executor import Executor
from appliance.batches.library import Library
from appliance.dispatch import Dispatcher
from appliance.events import Events
from appliance.keys import open_keys
from appliance.loglines import LogLines
from appliance.machine.confine import confine
from appliance.machine.gauges import Gauges
from appliance.machine.host import read_machine
from appliance.metrics import Metrics
from appliance.profiles import Profile, ProfileStore
from appliance.settings import Settings
from appliance.supervisor import Supervisor
from appliance.swaps.change import FALLBACK, spares
from appliance.swaps.journal import Journal
from appliance.swaps.prepare import Prepare, Prepared, Resolve, prepare
from appliance.swaps.swapper import Swapper
from appliance.templates import Renderer
from engine.errors import ColibriError, Unreachable, UsageError

LAST = "last"
FIRST_PROFILE = "quick-verify"
DRAIN_S, LEAVE_S, STOP_S = 11.0, 1.0, 5.0
"""Compose gives the container 20 s to end: so long for answers under way, then twice so long for connections that do
not end by themselves, then so long for the worker."""
BACKLOG = 128
THREADS = 32
"""At most, for what reads files: asyncio's own few would all wait for one slow disk, and a swap behind them."""
log = logs.get_logger("colibri.serve")


def run(settings: Settings, resolve: Resolve, profile: str | None) -> int:
    """Serve until told to stop; 0 after SIGTERM, 130 after SIGINT. Raises what the start cannot do."""
    heap.settle()
    logs.start(settings)
    tls.context(settings.ssl_key_file, settings.ssl_cert_file)  # what is wrong with them is told first
    with bind(settings.host, settings.port) as door:
        if said := confine(read_machine()):
            log.info("%s", said)
        return asyncio.run(_serve(first(settings, resolve, profile), door))


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; raises Unreachable that names the port and what to do."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise Unreachable(f"there is no address of the name {host}; give --host an address of this machine") from None
    door = socket.socket(family, kind, proto)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        if error.errno == errno.EADDRINUSE:
            raise Unreachable(
                f"port {port} on {host} is taken; stop what listens there or choose another with --port"
            ) from None
        raise Unreachable(
            f"cannot listen on {host} port {port} ({error.strerror}); choose others with --host and --port"
        ) from None
    door.setblocking(False)
    return door


@dataclass(frozen=True, slots=True)
class First:
    """What the server starts with; `degraded` says why it is not the profile that was meant."""

    prepared: Prepared
    store: ProfileStore
    journal: Journal
    resolve: Resolve
    degraded: str | None = None
    prepare: Prepare = prepare


def first(settings: Settings, resolve: Resolve, profile: str | None) -> First:
    """Open the profiles and prepare the first one. With LAST it is the one that served last, and if that cannot be
    prepared the fallback: a box that was left alone must come back. Else raises what is wrong with it."""
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        text = f"the data folder {settings.data_dir} cannot be made ({error.strerror}); give another with --data-dir"
        raise UsageError(text) from None
    store, journal = ProfileStore(settings.data_dir), Journal(settings.data_dir)
    if profile != LAST:
        found = store.load(profile) if profile else None
        return First(_prepared(resolve, found), store, journal, resolve)
    name = journal.active() or FIRST_PROFILE
    cause: ColibriError | None = None
    for wish, rev in dict.fromkeys([(name, None), *spares(FALLBACK)]):
        try:
            made = _prepared(resolve, store.load(wish, rev))
        except ColibriError as error:
            cause = cause or error
            continue
        if cause is None:
            return First(made, store, journal, resolve)
        who = f"'{wish}'{' as shipped' if rev == 0 else ''}"
        text = f"the profile '{name}' cannot be started ({cause.message}), {who} serves instead"
        log.error("%s", text)
        return First(made, store, journal, resolve, text)
    assert cause is not None
    raise cause


def _prepared(resolve: Resolve, profile: Profile | None) -> Prepared:
    values = {**profile.values, "name": profile.name} if profile else None
    return prepare(resolve(values).settings, read_machine(), profile)


async def _serve(begin: First, door: socket.socket) -> int:
    stop = _Signals()
    async with running(begin) as services, listening(make_app(services), door):
        host, port = door.getsockname()[:2]
        where = f"[{host}]" if ":" in host else host
        scheme = "https" if services.settings.ssl_key_file else "http"
        sys.stderr.write(f"listening on {scheme}://{where}:{port}, model {services.model.id}\n")
        sys.stderr.flush()
        number = await stop.first()
        log.info("stopping on %s", signal.Signals(number).name)
        await _drain(services, stop)
    code = 128 + number if number == signal.SIGINT else 0
    # A thread cannot be ended: one that tokenises megabytes or waits for a dead disk must not hold up the end.
    hurry = threading.Timer(LEAVE_S, os._exit, (code,))
    hurry.daemon = True
    hurry.start()
    return code


@contextlib.asynccontextmanager
async def running(begin: First) -> AsyncIterator[Services]:
    """The parts behind the routes, started and in the end stopped in order."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="files"))
    prepared, settings = begin.prepared, begin.prepared.settings
    keys, is_new = open_keys(settings.data_dir, api_key=settings.api_key, api_key_file=settings.api_key_file)
    if settings.no_auth and settings.host not in ("127.0.0.1", "::1", "localhost"):
        log.warning("no_auth on %s: whoever reaches this address may use the model without a key", settings.host)
    if is_new:
        key_watch.tell(settings.data_dir / "keys")
    supervisor = Supervisor(prepared.worker, prefix=prepared.prefix)
    dispatcher = Dispatcher(
        supervisor, max_queue=settings.max_queue, queue_timeout=settings.queue_timeout,
        max_queue_batch=settings.max_queue_batch,
    )  # fmt: skip
    renderer, events, loglines = Renderer(), Events(), LogLines()
    library = Library(settings.data_dir / "batches")
    await library.open()
    swapper = Swapper(
        supervisor=supervisor, dispatcher=dispatcher, store=begin.store, resolve=begin.resolve, events=events,
        journal=begin.journal, first=prepared, degraded=begin.degraded, prepare=begin.prepare,
    )  # fmt: skip
    services = Services(
        settings=settings, model=prepared.model, admission=admit(prepared, renderer), renderer=renderer,
        dispatcher=dispatcher, supervisor=supervisor, keys=keys, metrics=Metrics(prepared.model.id), store=begin.store,
        swapper=swapper, events=events, loglines=loglines, gauges=Gauges(settings.data_dir),
        body_cap=body_cap(prepared.n_ctx), batches=Executor(library),
    )  # fmt: skip
    with loglines.listening():
        who = f"the profile {prepared.name}" if prepared.name else "the command line's settings"
        events.tell("state", f"the service has started with {who}")
        supervisor.listen(services.chronicle)
        swapper.resumed()
        await supervisor.start(stop_s=settings.stop_timeout)
        warming = asyncio.create_task(services.admission.warm())
        following = asyncio.create_task(key_watch.follow(keys))
        try:
            yield services
        finally:
            warming.cancel()
            following.cancel()
            await swapper.close()
            await supervisor.stop(within_s=STOP_S)
            await dispatcher.close()
            await renderer.close()
            services.admission.close()
            services.handoffs.close()
            await library.close()


@contextlib.asynccontextmanager
async def listening(app: web.Application, door: socket.socket) -> AsyncIterator[None]:
    """Accept connections with our own protocol class; a client that leaves cancels its handler."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=LEAVE_S, **LIMITS)
    await runner.setup()
    manager = runner.server
    assert manager is not None
    loop = asyncio.get_running_loop()
    services = app[SERVICES]
    server = await loop.create_server(
        lambda: Connection(manager, loop=loop, **LIMITS), sock=door, backlog=BACKLOG,
        **tls.listens(services.settings.ssl_key_file, services.settings.ssl_cert_file),
    )  # fmt: skip
    rows = Rows(services, services.keys.internal("batch"))
    inner = await loop.create_unix_server(lambda: Connection(manager, loop=loop, **LIMITS), path=rows.path)
    try:
        async with rows:
            services.batches.begin(rows)
            try:
                yield
            finally:
                await services.batches.close()
    finally:
        inner.close()
        server.close()
        await runner.cleanup()


async def _drain(services: Services, stop: "_Signals") -> None:
    """Let answers under way end, for DRAIN_S or until a second signal; break off the rest with a clean error."""
    services.draining = True
    hurry = asyncio.create_task(stop.second())
    deadline = asyncio.get_running_loop().time() + DRAIN_S
    while services.generations.running() and not hurry.done() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    hurry.cancel()
    if services.generations.running():
        cut = Draining("the server was stopped before the answer was complete", retry_after_s=10)
        await services.generations.close(cut)
        # Their handlers have an error event to write.
        await asyncio.sleep(0.2)


class _Signals:
    """SIGTERM and SIGINT as something to wait for."""

    def __init__(self) -> None:
        self._seen: asyncio.Queue[int] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._seen.put_nowait, int(number))

    async def first(self) -> int:
        return await self._seen.get()

    async def second(self) -> int:
        return await self._seen.get()
