"""The engine's own process: `python -m appliance.worker --socket PATH --spec JSON`. Not here: who starts it (life.py).

Two threads. The main one does the socket, signals and the beat, and is never busy; the engine thread loads, steps and
turns ids into text. Whatever goes wrong in here ends this process only; the last words are a `fatal` frame.
"""

import argparse
import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from importlib import metadata
from typing import Any

from appliance.company import Company
from appliance.easing import AGAIN_S, Easing
from appliance.frames import error_value, read_generate
from appliance.session import EngineLike, Session
from appliance.wire import PROTOCOL, Frame, Line, WireError
from engine.errors import BadModelFile, ColibriError, DoesNotFit, EngineFailed, Unreachable
from engine.tokenizer.vocab import Vocab

BEAT_S = 1.0
EXPERTS_S = 5.0
"""How often it is told which experts are in memory."""
CANCEL_AGAIN_S = 0.02
"""How often a step is interrupted again until its session has ended."""
LOOK_S = 1.0
"""How often memory's pressure is looked at between steps."""
LEAVE_S = 3.0
NICE = 1
"""The service's other processes go first, and a stranger at nice 0 takes no more than 55% of a core from the engine."""
PR_SET_PDEATHSIG = 1

Progress = Callable[[str, int, int, str], None]


def load(spec: dict[str, Any], on_progress: Progress) -> tuple[EngineLike, Vocab]:
    """The real engine and the vocabulary of `spec["model"]`, with `spec["options"]` as EngineOptions; raises
    BadModelFile when it is not the file of `spec["identity"]`: other words, or other weights under the same name."""
    from appliance.machine.disk import disk_kind
    from appliance.machine.host import read_machine
    from appliance.swaps.model_facts import identity
    from engine.constrain import Grammars
    from engine.gguf.reader import read_gguf
    from engine.load import EngineOptions, load_engine
    from engine.text import open_text

    gguf = read_gguf(spec["model"])
    if spec.get("identity") and identity(gguf.path) != tuple(spec["identity"]):
        raise BadModelFile(
            f"'{gguf.path.name}' was replaced by another file since it was planned; swap to it anew, or start the "
            "service again"
        )
    # How fast its disk is decides nothing here, but a slow kind of disk is worth a warning.
    machine = replace(read_machine(beside=(os.getppid(),)), disk_kind=disk_kind(gguf.path))
    engine = load_engine(spec["model"], EngineOptions(**spec["options"]), machine, on_progress=on_progress)
    text = open_text(gguf)
    engine.grammars = Grammars(text.vocab, partial(text.encode, add_special=False, parse_special=False))
    return engine, text.vocab


class EngineThread(threading.Thread):
    """Owns the engine from its first byte to its last step. `failure` is why it ended, None after an orderly stop."""

    def __init__(self, spec: dict[str, Any], line: Line) -> None:
        super().__init__(name="engine", daemon=True)
        self.inbox: queue.SimpleQueue[Session | None] = queue.SimpleQueue()
        self.engine: EngineLike | None = None
        self.vocab: Vocab | None = None
        self.company: Company | None = None
        self.failure: ColibriError | None = None
        self._spec = spec
        self._line = line
        self._is_leaving = False
        self._next_look = 0.0

    def run(self) -> None:
        try:
            self._load()
            assert self.engine is not None
            resize = getattr(self.engine, "resize_experts", None)
            easing = Easing(resize) if resize and resize(1.0) is not None else None
            self.company = Company(self.engine)
            while self._welcome(self.company, easing):
                self.company.step()
            self.engine.shutdown()
        except ColibriError as error:
            self.failure = error
        except MemoryError:
            self.failure = DoesNotFit("the engine asked for memory that the machine does not have; lower ctx_size")
        except BaseException as error:
            traceback.print_exc()
            self.failure = EngineFailed(f"it met {type(error).__name__}; the log has the place")
        finally:
            self._line.wake()

    def _welcome(self, company: Company, easing: Easing | None) -> bool:
        """Let those join for whom there is room, and wait while nobody is there; False when it is time to go. Memory
        that others need is given back, also while nobody asks."""
        while True:
            if easing and (now := time.monotonic()) >= self._next_look:
                self._next_look = now + LOOK_S
                if easing.look():
                    sys.stderr.write(f"worker: the cache of experts has {easing.share:.0%} of its size now\n")
            try:
                while not self._is_leaving and len(company.sessions) < company.room:
                    session = self.inbox.get(block=not company.sessions, timeout=AGAIN_S if easing else None)
                    if session is None:
                        self._is_leaving = True
                    else:
                        company.join(session)
            except queue.Empty:
                pass
            if company.sessions or self._is_leaving:
                return bool(company.sessions)

    def _load(self) -> None:
        began = time.perf_counter()
        module, _, name = self._spec.get("engine_factory", f"{__name__}:load").partition(":")
        factory = load if module in (__name__, "appliance.worker") else getattr(importlib.import_module(module), name)
        self.engine, self.vocab = factory(self._spec, self._progress)
        info = self.engine.info
        facts = asdict(info) if is_dataclass(info) and not isinstance(info, type) else dict(vars(info))
        load_s = time.perf_counter() - began
        self._line.post({"type": "ready", "pid": os.getpid(), "load_s": load_s, "rss_anon": rss_anon(), **facts})

    def _progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        self._line.post({"type": "progress", "stage": stage, "done": done, "total": total, "note": note})


class Worker:
    """The main thread's side."""

    def __init__(self, spec: dict[str, Any], line: Line) -> None:
        self._line = line
        self._thread = EngineThread(spec, line)
        self._sessions: dict[str, Session] = {}
        self._stopping = False

    def stop(self, *_: object) -> None:
        """Leave soon; a signal handler may call this."""
        self._stopping = True
        self._line.wake()

    def run(self) -> int:
        """Serve until told to stop or the API process is gone; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        self._line.post({"type": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "version": _version()})
        self._thread.start()
        try:
            self._serve()
        except ConnectionError:
            return self._leave(0)
        except WireError as error:
            sys.stderr.write(f"worker: {error.message}\n")
            return self._leave(1)
        failure = self._thread.failure
        if failure is not None:
            self._line.post({"type": "fatal", "error": error_value(failure)})
            return self._leave(failure.exit_code)
        return self._leave(0)

    def _serve(self) -> None:
        next_beat = next_experts = time.monotonic()
        while not self._stopping and self._thread.is_alive():
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + BEAT_S
                self._line.post(self._beat())
                if now >= next_experts and (frame := experts_frame(self._thread.engine)) is not None:
                    next_experts = now + EXPERTS_S
                    self._line.post(frame)
            wait_s = next_beat - now
            company = self._thread.company
            if company is not None and any(session.cancelled.is_set() for session in company.sessions):
                company.interrupt()
                wait_s = CANCEL_AGAIN_S
            for frame in self._line.pump(wait_s):
                self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        match frame["type"]:
            case "generate":
                self._generate(frame)
            case "ack" | "cancel" if frame.get("id") in self._sessions:
                session = self._sessions[frame["id"]]
                if frame["type"] == "ack":
                    session.outbox.ack(int(frame["n"]))
                else:
                    session.cancelled.set()
            case "ack" | "cancel":
                pass  # it crossed the last frame of its request
            case "hello":
                if frame.get("protocol") != PROTOCOL:
                    raise WireError(f"the API process speaks protocol {frame.get('protocol')!r}, this one {PROTOCOL}")
            case "shutdown":
                self._stopping = True
            case other:
                raise WireError(f"the API process sent a {other!r} frame, which nobody here knows")

    def _generate(self, frame: Frame) -> None:
        if self._thread.vocab is None:
            raise WireError("the API process sent a request before the engine was ready")
        request = read_generate(frame)
        session = Session(request, self._thread.vocab, self._post)
        self._sessions[request.id] = session
        self._thread.inbox.put(session)

    def _post(self, frame: Frame) -> None:
        """What a session sends; its last frame also ends its being known here."""
        if frame["type"] in ("done", "cancelled", "error"):
            self._sessions.pop(frame["id"], None)
        self._line.post(frame)

    def _beat(self) -> Frame:
        engine, company = self._thread.engine, self._thread.company
        sessions = company.sessions if company is not None else []
        beat: Frame = {"type": "beat", "beat": engine.beat() if engine is not None else 0, "busy": bool(sessions)}
        if sessions:
            session = sessions[0]
            beat |= {"id": session.request.id, "phase": session.phase, "done": session.n_done, "total": session.n_total}
        if (spent := getattr(engine, "spent", None)) is not None:
            beat["spent"] = asdict(spent())
        return beat | {"rss_anon": rss_anon()}

    def _leave(self, code: int) -> int:
        """Cancel what runs, wait a moment for the engine thread, say the last frames."""
        deadline = time.monotonic() + LEAVE_S
        self._thread.inbox.put(None)
        while self._thread.is_alive() and self._thread.engine is not None and time.monotonic() < deadline:
            for session in list(self._sessions.values()):
                session.cancelled.set()
            if self._thread.company is not None:
                self._thread.company.interrupt()
            self._thread.join(CANCEL_AGAIN_S)
        self._line.drain(LEAVE_S)
        return code


def experts_frame(engine: Any) -> Frame | None:
    """Which experts are in memory and how hot they are, for whoever draws a map; None for a model without a cache."""
    experts = getattr(engine, "experts", None)
    if experts is None:
        return None
    heat, held = experts.heat.copy(), experts.held
    scaled = (heat * (255.0 / max(float(heat.max()), 1e-30))).astype("uint8")
    return {
        "type": "experts", "shape": list(held.shape), "held": held.astype("uint8").tobytes().hex(),
        "heat": scaled.tobytes().hex(), "used_bytes": experts.used_bytes,
    }  # fmt: skip


def _version() -> str:
    try:
        return metadata.version("colibri-runtime")
    except metadata.PackageNotFoundError:
        return "checkout"


def rss_anon() -> int:
    """Anonymous memory of this process in bytes: what it costs the machine, without the file's pages."""
    with open("/proc/self/status") as status:
        for row in status:
            if row.startswith("RssAnon:"):
                return int(row.split()[1]) * 1024
    return 0


def settle_in(parent: int) -> None:
    """Die with the parent, give way to the API, leave no core file."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        raise SystemExit(0)  # it died before the line above
    with contextlib.suppress(OSError):  # nicer than that already
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    sys.setswitchinterval(0.0005)
    faulthandler.enable()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="appliance.worker", description="The engine process; started by `serve`.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--spec", required=True, type=json.loads)
    parser.add_argument("--parent", type=int, default=0)
    args = parser.parse_args(argv)
    settle_in(args.parent)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(args.socket)
    except OSError as error:
        sys.stderr.write(f"worker: nobody listens at the given socket ({error.strerror}); use `colibri serve`\n")
        return Unreachable.exit_code
    return Worker(args.spec, Line(sock)).run()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Not sys.exit: an engine thread may still be in a step, and waiting for it would keep the memory.
    os._exit(code)
