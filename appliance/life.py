"""One worker process from its start to its end. Not here: starting the next (supervisor.py), the engine (worker.py).

A life ends when the process ends, when it hangs up or speaks nonsense, or when its Vigil sees no sign of life; then it
is made sure that it is dead. The worker leads a session of its own, so that a Ctrl-C meant for the server does not
reach it, and so that its helpers end with it.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import appliance
from appliance.deaths import describe, oom_kills
from appliance.frames import read_error
from appliance.vigil import Vigil
from appliance.wire import PROTOCOL, Frame, WireError, check_hello, pack, read_frame
from engine.errors import ColibriError

log = logging.getLogger("colibri.worker")

SECRETS = ("COLIBRI_API_KEY", "LLAMA_API_KEY")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The engine brings its own threads; libraries that start pools of the host's size only fight them."""
TAIL_LINES = 40
LINE_CHARS = 500
SOCKET_PATH_BYTES = 100


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What the worker shall load: a model file and the fields of engine.load.EngineOptions. `identity` is the
    file's at the moment when the API read its vocabulary (model_facts.identity): another one is refused."""

    model: str
    options: Mapping[str, Any]
    engine_factory: str = "appliance.worker:load"
    identity: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is too long, in seconds: between signs of life, for a load without progress, for leaving politely."""

    beat_s: float = 60.0
    load_s: float = 600.0
    stop_s: float = 5.0


class Life:
    """`await run()` is the whole of it; `send` works once `on_frame` has seen "ready"; `reason` is why it ended."""

    def __init__(self, patience: Patience, on_frame: Callable[[Frame], None], on_silence: Callable[[], None]) -> None:
        self.fatal: ColibriError | None = None
        self.was_ready = False
        self.pid: int | None = None
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._patience = patience
        self._on_frame = on_frame
        self._on_silence = on_silence
        self._hung: str | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process
        self._folder: str
        self._kills_before = (0, 0)

    @property
    def reason(self) -> str:
        """A clause that says why it ended."""
        return self._hung or (
            self.fatal.message if self.fatal else describe(self._process.returncode, self._kills_before)
        )

    def send(self, data: bytes) -> bool:
        """Write a packed frame; False when nobody is there to read it."""
        if self._writer is None or not self.was_ready:
            return False
        self._writer.write(data)
        return True

    async def run(self, spec: WorkerSpec, prefix: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the process and return when it is dead; when cancelled, end it first."""
        try:
            await self._live(spec, prefix, env)
        except (OSError, RuntimeError) as error:  # no room for the socket, no process or thread to be had
            self._hung = f"it could not be started: {getattr(error, 'strerror', None) or error}"
        except Exception as error:  # whoever keeps a worker running must go on
            log.exception("a defect of Colibri in the care of the engine process")
            self._hung = f"its care met {type(error).__name__}, a defect of Colibri: please report it with the log"

    def kill(self) -> None:
        """End the process now, whatever it does."""
        if self.pid is not None:
            self._signal(signal.SIGKILL)

    async def _live(self, spec: WorkerSpec, prefix: Sequence[str], env: Mapping[str, str]) -> None:
        self._folder = _private_folder()
        try:
            with socket.socket(socket.AF_UNIX) as door:
                path = os.path.join(self._folder, "s")
                door.bind(path)
                door.listen(1)
                door.setblocking(False)
                self._kills_before = oom_kills()
                self._process = await self._spawn(path, spec, prefix, env)
                self.pid = self._process.pid
                try:
                    await self._attend(door)
                finally:
                    await self._bury()
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _spawn(
        self, path: str, spec: WorkerSpec, prefix: Sequence[str], env: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        root = str(Path(appliance.__file__).parents[1])
        clean = {name: value for name, value in env.items() if name not in SECRETS} | ONE_THREAD
        clean["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
        words = json.dumps({**asdict(spec), "options": dict(spec.options)})
        program = (*prefix, sys.executable, "-P", "-m", "appliance.worker")
        process = await asyncio.create_subprocess_exec(
            *(*program, "--socket", path, "--parent", str(os.getpid()), "--spec", words),
            env=clean,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        # The first whom the kernel kills for memory. At once: while it imports, this process here is the larger one.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        return process

    async def _attend(self, door: socket.socket) -> None:
        async with asyncio.TaskGroup() as group:
            stderr = group.create_task(self._read_stderr())
            ended = group.create_task(self._process.wait())
            talk = group.create_task(self._talk(door))
            await asyncio.wait((ended, talk), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and not self._hung:  # it hung up or spoke nonsense: it may leave by itself
                await asyncio.wait((ended,), timeout=self._patience.stop_s)
            if not ended.done() and self._hung:
                self._signal(signal.SIGABRT)  # faulthandler writes the stacks of all threads
                await asyncio.wait((ended,), timeout=1.0)
            self._signal(signal.SIGKILL)  # also for helpers it may have left in its session
            await ended
            if self._writer is None:
                talk.cancel()  # it never came to the door
            await asyncio.wait((stderr, talk), timeout=self._patience.stop_s)
            stderr.cancel()
            talk.cancel()

    async def _talk(self, door: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._patience.load_s):
                peer = await self._admit(door)
        except TimeoutError:
            self._hung = f"it did not report within {self._patience.load_s:.0f} s"
            return
        self._remove_folder()  # now, so that a server killed later leaves nothing behind
        reader, self._writer = await asyncio.open_unix_connection(sock=peer)
        vigil = Vigil(self._patience.beat_s, self._patience.load_s)
        listening = asyncio.create_task(self._listen(reader, self._writer, vigil))
        watching = asyncio.create_task(vigil.watch())
        try:
            await asyncio.wait((listening, watching), return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():
                self._hung = watching.result()
                log.error("the engine process is being ended: %s", self._hung)
        finally:
            writer, self._writer = self._writer, None
            writer.close()
            listening.cancel()
            watching.cancel()
            await asyncio.gather(listening, watching, return_exceptions=True)
            self._on_silence()

    async def _admit(self, door: socket.socket) -> socket.socket:
        """The worker's connection; a stranger of the same user is shown out."""
        while True:
            peer, _ = await asyncio.get_running_loop().sock_accept(door)
            if _peer_pid(peer) == self.pid:
                return peer
            peer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, vigil: Vigil) -> None:
        try:
            check_hello(await read_frame(reader))
            writer.write(pack({"type": "hello", "protocol": PROTOCOL}))
            while (frame := await read_frame(reader)) is not None:
                vigil.saw(frame)
                if frame["type"] == "fatal":
                    self.fatal = read_error(frame["error"])
                    continue
                self.was_ready = self.was_ready or frame["type"] == "ready"
                self._on_frame(frame)
        except WireError as error:
            self.fatal = error
        except (LookupError, TypeError, ValueError) as error:
            log.exception("a frame of the worker is malformed")
            self.fatal = WireError(f"the engine process sent a malformed frame ({type(error).__name__})")

    async def _read_stderr(self) -> None:
        """Log and keep the last lines; of any length, of any bytes."""
        assert self._process.stderr is not None
        rest = b""
        while data := await self._process.stderr.read(1 << 14):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-(1 << 14) :]
            for line in lines:
                self._log(line)
        if rest:
            self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace")[:LINE_CHARS].rstrip()
        self.tail.append(text)
        log.info("| %s", text)

    async def _bury(self) -> None:
        """After a cancellation the process still lives: politely, then for certain."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), self._patience.stop_s)
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        self.pid = None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _private_folder() -> str:
    """A new folder that only this user can enter, with a path short enough for a socket (108 bytes)."""
    folder = tempfile.mkdtemp(prefix="colibri-")
    if len(os.fsencode(folder)) > SOCKET_PATH_BYTES:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="colibri-", dir="/tmp")
    return folder


def _peer_pid(peer: socket.socket) -> int:
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)
