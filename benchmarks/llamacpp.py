"""llama.cpp as the peer: its native binaries and the xllamacpp package, started, pinned and asked over HTTP.

Binaries are given by flag or by PEER_BENCH / PEER_SERVER, or found on PATH.
Not here: what is compared (peers.py, serve.py, accuracy.py).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import pin_self

XLLAMACPP = "xllamacpp"
# A process of its own, so that it can be pinned and measured like any other server. It ends with its standard input.
_XLLAMACPP_SERVER = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.cpuparams.n_threads, p.port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
p.cpuparams_batch.n_threads = p.cpuparams.n_threads
p.n_parallel, p.verbosity = 1, 0
server = xllamacpp.Server(p)
sys.stdin.read()
"""


def binary(name: str, given: str | None = None) -> str | None:
    """The path of llama-bench or llama-server: the flag, else the environment, else PATH; None when there is none."""
    asked = given or os.environ.get(f"PEER_{name.removeprefix('llama-').upper()}")
    if asked and not os.access(asked, os.X_OK):
        raise SystemExit(f"{asked} cannot be run; give the path of a built {name}")
    return asked or shutil.which(name)


def has_xllamacpp() -> bool:
    return find_spec(XLLAMACPP) is not None


def versions(server_or_bench: str) -> dict[str, str]:
    """What is known of a peer: the package's version, or the binary's own line and its build folder's flags."""
    if server_or_bench == XLLAMACPP:
        return {"package": f"xllamacpp {version(XLLAMACPP)}", "build": "prebuilt wheel, AVX2"}
    said = subprocess.run([server_or_bench, "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.startswith(("version", "built"))]
    cache = Path(server_or_bench).resolve().parent.parent / "CMakeCache.txt"
    wanted = ("GGML_NATIVE:", "GGML_OPENMP:", "GGML_CPU_REPACK:", "CMAKE_BUILD_TYPE:", "LLAMA_BUILD_COMMIT:")
    flags = [line for line in (cache.read_text().splitlines() if cache.exists() else []) if line.startswith(wanted)]
    return {"version": "; ".join(lines), "build": " ".join(flags)}


def post(url: str, body: dict[str, Any], timeout_s: float = 600.0) -> Any:
    """POST JSON, return the decoded answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server of the peer for the length of a `with`: `program` is a llama-server binary or "xllamacpp"."""

    def __init__(
        self,
        program: str,
        model: Path,
        *,
        n_ctx: int = 4096,
        n_threads: int = 2,
        cpus: Sequence[int] | None = None,
        flags: Sequence[str] = (),
        n_parallel: int = 1,
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        if program == XLLAMACPP:
            self.command = [sys.executable, "-c", _XLLAMACPP_SERVER, str(model), str(n_ctx), str(n_threads), str(port)]
        else:
            sizes = ["-c", str(n_ctx), "-t", str(n_threads), "-np", str(n_parallel), "--port", str(port)]
            self.command = [program, "-m", str(model), *sizes, "--host", "127.0.0.1", *flags]
        self.cpus = cpus

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=partial(pin_self, self.cpus) if self.cpus else None,
        )
        wait_for_health(self.url, self.process)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def complete(self, ids: Sequence[int], n_predict: int, n_probs: int = 0, **more: Any) -> Any:
        """llama-server's own /completion: greedy unless told otherwise, ids in, tokens and log-probabilities out."""
        body = {"prompt": list(ids), "n_predict": n_predict, "n_probs": n_probs, "temperature": 0}
        return post(f"{self.url}/completion", body | {"return_tokens": True, "cache_prompt": False} | more)


def wait_for_health(url: str, process: subprocess.Popen[bytes], patience_s: float = 120.0) -> None:
    """Return when GET /health answers 200; SystemExit when the process ends or the patience does."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with code {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    process.kill()
    raise SystemExit(f"{process.args!r} was not ready within {patience_s:.0f} s")


def tops(answer: Any) -> list[list[tuple[int, float]]]:
    """The reported distributions of /completion, most likely first."""
    return [[(t["id"], t["logprob"]) for t in p["top_logprobs"]] for p in answer["completion_probabilities"]]
