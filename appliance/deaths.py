"""Why a worker process ended, in words a person can act on. Not here: what is done about it (supervisor.py)."""

import signal
from pathlib import Path

from appliance.machine.kernel_files import pairs
from engine.errors import Unreachable

CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")
HOST_EVENTS = Path("/proc/vmstat")

ILLEGAL = (
    "an illegal instruction (signal 4): compiled kernels use something this CPU or its emulation lacks; "
    "start with COLIBRI_ISA=v2"
)


def oom_kills() -> tuple[int, int]:
    """How many processes the kernel has killed for memory so far: in this cgroup, on this machine; 0 where unknown."""
    return pairs(CGROUP_EVENTS).get("oom_kill", 0), pairs(HOST_EVENTS).get("oom_kill", 0)


def describe(returncode: int | None, kills_before: tuple[int, int]) -> str:
    """A clause like "signal 9, perhaps out of memory" for a return code as subprocess gives it (-9: signal 9)."""
    if returncode is None:
        return "it cannot be reached"
    if returncode == Unreachable.exit_code:
        return "its socket was gone before it came to it: look whether something clears the folder for temporary files"
    if returncode >= 0:
        return f"exit code {returncode}"
    number = -returncode
    if number == signal.SIGKILL:
        in_cgroup, on_host = (now > before for now, before in zip(oom_kills(), kills_before, strict=True))
        if in_cgroup:
            return "signal 9: the memory limit of this container was reached; lower ctx_size or raise the limit"
        if on_host:
            return "signal 9: the machine ran out of memory; lower ctx_size or end other programs"
        return "signal 9, perhaps out of memory"
    if number == signal.SIGILL:
        return ILLEGAL
    if number == signal.SIGSEGV:
        return "a segmentation fault (signal 11), which is a defect of Colibri: please report it with the log"
    if number == signal.SIGBUS:
        return "a bus error (signal 7): the model file was cut or its disk failed while it was mapped"
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
