"""A new worker before anybody may use it: it starts, reads its weights, answers a probe, and is what was promised. Not
here: what follows when it fails (swapper.py).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.dispatch import Dispatcher
from appliance.request import Done, GenerateRequest, Prefill
from appliance.supervisor import Supervisor
from appliance.swaps.prepare import Prepared
from appliance.swaps.swap import Progress, Stage
from engine.errors import ColibriError, EngineFailed
from engine.sampling import Sampling

LOOK_S = 0.05
UNITS = {"compile": "kernels", "load": "bytes"}


class StageTimeout(ColibriError):
    """A stage took longer than its limit."""

    code = "stage_timeout"


class BrokenPromise(EngineFailed):
    """The worker runs, but it is not what the profile asked for."""

    code = "broken_promise"


@dataclass(frozen=True, slots=True)
class Trial:
    """The three stages of one candidate. Each returns when it is passed and raises a ColibriError when it is not."""

    supervisor: Supervisor
    dispatcher: Dispatcher
    candidate: Prepared
    name: str

    async def start(self, stage: Stage, idle_limit_s: float) -> None:
        """Until the weights begin to be read; `idle_limit_s` counts from the last progress, since a CPU that is new
        here compiles for as long as it takes."""
        c = self.candidate
        await self.supervisor.start(c.worker, c.prefix, stop_s=c.settings.stop_timeout, trial=True)
        seen: Any = None
        since = time.monotonic()
        while self.supervisor.state in ("starting", "compiling"):
            progress = self.supervisor.progress
            if progress != seen:
                seen, since = progress, time.monotonic()
                stage.progress = _progress(progress, time.time() - (stage.started or 0.0))
            if time.monotonic() - since > idle_limit_s:
                raise StageTimeout(f"the new engine process made no progress for {idle_limit_s:g} s")
            await asyncio.sleep(LOOK_S)
        self._alive()
        stage.detail = f"process {self.supervisor.pid}"

    async def warm(self, stage: Stage) -> None:
        """Until the weights are where they belong and have been used once."""
        while self.supervisor.state == "loading":
            stage.progress = _progress(self.supervisor.progress, time.time() - (stage.started or 0.0)) or stage.progress
            await asyncio.sleep(LOOK_S)
        self._alive()
        read_s = time.time() - (stage.started or 0.0)
        done = await self._ask(stage, n_predict=1, suffix="warm")
        stage.detail = f"weights in {read_s:.1f} s, {done.n_prompt} tokens of the warm-up prompt read"

    async def check(self, stage: Stage) -> float:
        """That it is what was promised, and that it writes; the tokens per second it wrote."""
        info = self.supervisor.info
        wrong = [
            f"{fact} is {info[fact]}, {value} was asked for"
            for fact, value in self.candidate.promised.items()
            if fact in info and info[fact] != value
        ]
        if wrong:
            raise BrokenPromise(f"the engine runs, but {'; '.join(wrong)}")
        wanted = self.candidate.settings.warmup_tokens
        done = await self._ask(stage, n_predict=wanted, suffix="check")
        if done.n_generated < wanted:
            raise BrokenPromise(f"the probe wrote {done.n_generated} of {wanted} tokens")
        speed = float(done.timings.get("predicted_per_second", 0.0))
        stage.detail = f"{done.n_generated} tokens, {speed:.1f} tok/s"
        return speed

    def _alive(self) -> None:
        if self.supervisor.state != "ready" and self.supervisor.state != "loading":
            raise self.supervisor.error or EngineFailed("the engine process ended")

    async def _ask(self, stage: Stage, *, n_predict: int, suffix: str) -> Done:
        c = self.candidate
        room = max(1, c.n_ctx - n_predict)
        ids = await asyncio.to_thread(c.text.encode, c.settings.warmup_prompt, True, False)
        request = GenerateRequest(
            id=f"{self.name}-{suffix}", prompt_ids=ids[:room] or [0], sampling=Sampling(temperature=0.0),
            model=c.model.id, max_tokens=n_predict, ignore_eos=True,
        )  # fmt: skip
        async with self.dispatcher.direct(request) as ticket:
            async for event in ticket:
                if isinstance(event, Prefill):
                    stage.progress = Progress(event.done, event.total, "tokens", note="prompt")
                elif isinstance(event, Done):
                    return event
        raise EngineFailed("the probe ended without an answer")


def _progress(frame: dict[str, Any] | None, elapsed_s: float) -> Progress | None:
    if frame is None or frame["stage"] not in UNITS:
        return None
    done, total = float(frame["done"]), float(frame["total"])
    rate = done / elapsed_s if elapsed_s > 0 and done else None
    eta_s = round((total - done) / rate, 1) if rate else None
    return Progress(done, total, UNITS[frame["stage"]], rate, eta_s, str(frame["note"]))


async def within(limit_s: float | None, abort: asyncio.Event, work: Callable[[], Any], refusal: str) -> Any:
    """Run `work()` until it ends, `limit_s` is over (StageTimeout with `refusal`) or `abort` is set (Aborted)."""
    task, wish = asyncio.ensure_future(work()), asyncio.ensure_future(abort.wait())
    try:
        await asyncio.wait((task, wish), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if abort.is_set():
            raise Aborted("it was aborted")
        raise StageTimeout(refusal)
    finally:
        for one in (task, wish):
            one.cancel()
        await asyncio.gather(task, wish, return_exceptions=True)


class Aborted(ColibriError):
    """Somebody changed their mind."""

    status, code = 409, "aborted"
