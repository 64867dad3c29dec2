"""Sentences about this machine that are worth reading now, each with what to do. Not here: measuring (gauges.py).

Only what a person can change or must know; a figure that is merely unusual is no warning.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.machine.gauges import Reading

MIB = 1 << 20
LITTLE_DISK = 512 * MIB
LITTLE_MEMORY = 0.05
"""Of all memory, or of the container's limit: below that the next large answer may be the one that is killed for."""
PAGING_PER_S = 50.0
HOT_C = 90.0
IDLE, BUSY = 0.10, 0.50
WAITING = 0.5
"""Of the time of a stream's steps."""
STALLED = 10.0
"""Percent of ten seconds in which all of our group's tasks waited for memory."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What the warnings need to know of our processes; `notes` are the engine's own words about its load; a stream
    reads weights from the disk for each token, and `disk_share` of the last steps' time was waiting for that."""

    worker_swap: int = 0
    n_waiting: int = 0
    notes: tuple[str, ...] = ()
    is_streaming: bool = False
    disk_share: float | None = None


def warnings(now: Reading, engine: Engine) -> list[str]:
    """The worst first."""
    return [*_memory(now, engine), *_disk(now, engine), *_cpu(now, engine), *_pages(now), *engine.notes]


def _memory(now: Reading, engine: Engine) -> Iterator[str]:
    machine = now.machine
    if engine.worker_swap > 16 * MIB:
        yield (
            f"{_mib(engine.worker_swap)} of the engine are in swap, so answers wait for the disk; end other programs "
            "or take a profile with a smaller ctx_size, then swap to it"
        )
    if (now.pressure.memory_full or 0.0) > STALLED:
        yield (
            f"for {now.pressure.memory_full:.0f}% of the last seconds everything waited for memory; free some, raise "
            "the limit, or take a smaller profile"
        )
    if now.pressure.oom_kill:
        yield (
            f"the kernel has ended {now.pressure.oom_kill} of this container's processes for memory since it started; "
            "raise the limit or take a smaller profile"
        )
    if engine.is_streaming and machine["swap_total"] == 0 and not machine["limit"]:
        yield (
            "there is no swap, so the kernel ends a program as soon as memory runs out, and the weights that are kept "
            "in memory leave little; add some swap, or a memory limit for the service"
        )
    if (now.major_faults_s or 0.0) > PAGING_PER_S:
        yield (
            f"the engine reads {now.major_faults_s:.0f} pages a second from the disk; its weights do not stay in "
            "memory: take a smaller model or context, or free memory"
        )
    total, available = machine["total"], machine["available"]
    if total and available is not None and available < LITTLE_MEMORY * total:
        yield f"only {_mib(available)} of memory are available; end other programs or take a smaller profile"
    limit, used = machine["limit"], machine["limit_used"]
    if limit and used is not None and limit - used < LITTLE_MEMORY * limit:
        yield (
            f"the container uses {_mib(used)} of its {_mib(limit)}; at the limit the kernel ends the engine: raise "
            "the limit or take a smaller profile"
        )


def _disk(now: Reading, engine: Engine) -> Iterator[str]:
    if engine.is_streaming and (engine.disk_share or 0.0) > WAITING:
        yield (
            f"answers wait for the disk for {engine.disk_share:.0%} of their time; more memory for this service, a "
            "smaller model or a faster disk makes them faster"
        )
    if now.data_free is not None and now.data_free < LITTLE_DISK:
        yield f"the data folder's disk has {_mib(now.data_free)} left; without room no profile can be saved: make room"
    if now.data_total is None:
        yield "the data folder cannot be reached, so nothing can be saved; mount it again"


def _cpu(now: Reading, engine: Engine) -> Iterator[str]:
    if now.throttled:
        at = f" at {now.temp_c:.0f} C" if now.temp_c is not None else ""
        yield f"the CPU was slowed down for heat within the last minute{at}; look after its cooling"
    elif now.temp_c is not None and now.temp_c >= HOT_C:
        yield f"the CPU has {now.temp_c:.0f} C and will soon be slowed down; look after its cooling"
    slow = sorted({node.governor for node in now.nodes if node.governor not in (None, "performance")})
    if slow:
        yield (
            f"the CPU governor is {' and '.join(map(str, slow))}, not performance, which costs speed; run "
            "`colibri host apply --yes` as root on the host"
        )
    idle = [node.node for node in now.nodes if node.util is not None and node.util < IDLE]
    is_busy = any(node.util is not None and node.util > BUSY for node in now.nodes)
    if idle and is_busy and engine.n_waiting:
        yield (
            f"node {idle[0]} is idle while requests wait ({engine.n_waiting}); more threads and numa: distribute in "
            "the profile may use it"
        )


def _pages(now: Reading) -> Iterator[str]:
    if now.thp == "never":
        yield (
            "huge pages are off (never), which costs speed; run `colibri host apply --yes` as root on the host, then "
            "swap to the profile again"
        )


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB / 1024:.1f} GiB" if n_bytes >= 10 * 1024 * MIB else f"{n_bytes / MIB:,.0f} MiB"
