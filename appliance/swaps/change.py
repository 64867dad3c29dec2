"""One change of the engine, from the drain to whoever serves in the end: the stages of swap.py, carried out. Not here:
which profile and when (swapper.py), what the API does with the result.

Never are two engines in memory: the next one starts when the process before is dead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from appliance import logs
from appliance.dispatch import Dispatcher
from appliance.profiles import Profile
from appliance.supervisor import Supervisor
from appliance.swaps.prepare import Prepared
from appliance.swaps.swap import Progress, Rescue, Stage, State, Swap
from appliance.swaps.trial import Aborted, StageTimeout, Trial, within
from engine.errors import ColibriError, EngineFailed, Unavailable

log = logs.get_logger("colibri.swap")
LOOK_S = 0.05
RETRY_S = 20
GONE = ("crashed", "stopped")
"""States of a supervisor that starts nobody by itself."""
FALLBACK = "fallback"
"""The profile that is tried last, whatever another one names."""
STOPPED = EngineFailed("the engine was stopped for a change of profile; send the request again")
ADVICE = {
    "start_timeout": "look at the engine's last lines; a machine under load may need a larger start_timeout",
    "warm_timeout": "the disk may be slow or ill; raise warm_timeout or choose a smaller model",
    "check_timeout": "the engine answers too slowly; raise check_timeout or choose a smaller model",
    "bad_model_file": "the model file is damaged or of another kind; bring it again and compare its checksum",
    "does_not_fit": "lower ctx_size, take q8_0 for the cache, or choose a smaller model",
    "aborted": "the profile before serves again",
    "broken_promise": "this is a defect of Colibri: please report it with the log",
}


class Answers(Protocol):
    """The answers under way, as a change needs them."""

    def n_begun(self) -> int:
        """Answers that have begun and not ended; those that only wait do not count."""

    async def break_off(self, error: ColibriError) -> int:
        """End those that have begun; how many."""

    async def renew(self) -> int:
        """Make the requests of all that only wait anew, for the model in force; how many were refused by that."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended and who serves: nobody when `state` is crashed. `degraded` is why it is not who was wanted; with
    `is_back` it is who served before."""

    state: State
    serving: Prepared | None
    degraded: str | None = None
    is_back: bool = False


Wish = tuple[str, int | None]
"""A profile's name and the revision, None for the one in force."""


def spares(fallback: str) -> list[Wish]:
    """Who is tried when the profile before cannot come back: at last the packaged fallback, if its edit is no good."""
    return list(dict.fromkeys([(fallback, None), (FALLBACK, None), (FALLBACK, 0)]))


@dataclass(slots=True)
class Change:
    """`run` or `rescue` is the whole of it. `find` and `prepare` make a candidate; `abort` may be set by anyone."""

    swap: Swap
    supervisor: Supervisor
    dispatcher: Dispatcher
    answers: Answers
    find: Callable[[str, int | None], Profile]
    prepare: Callable[[Profile], Awaitable[Prepared]]
    abort: asyncio.Event

    async def run(self, old: Prepared, candidate: Prepared) -> Outcome:
        """From `old` to `candidate`; whatever happens, somebody serves at the end if any profile can be started."""
        try:
            await self._drain(old)
        except Aborted as error:
            self.swap.fail(error, advice="nothing was stopped")
            if self.supervisor.state not in GONE:
                return Outcome("aborted", old)
            return await self.rescue(old, spares(old.settings.fallback))
        try:
            await self._stop(old)
            self.swap.tok_s = await self._try(self.swap, candidate)
        except Exception as error:
            self._note(_as_ours(error))
            return await self.rescue(old, spares(candidate.settings.fallback))
        return Outcome("ready", candidate)

    async def rescue(self, old: Prepared | None, wishes: Sequence[Wish], is_again: bool = False) -> Outcome:
        """Get somebody to serve: `old`, then the `wishes`; with `is_again` the first of them is who served before."""
        swap = self.swap
        swap.gap_began = swap.gap_began or time.time()
        # Begun and between two of its choices: whoever serves next may be another model.
        await self.answers.break_off(STOPPED)
        if old is not None and await self._attempt(old, "rollback"):
            return Outcome("rolled_back", old, is_back=True)
        tried = {(swap.new, swap.new_rev)} if old is not None else set()
        tried |= set() if is_again else {(swap.old, swap.old_rev)}
        cause = swap.reason.message if swap.reason else "the profile before could not be started"
        for wish in wishes:
            try:
                profile = self.find(*wish)
                if (profile.name, profile.rev) in tried:
                    continue
                tried.add((profile.name, profile.rev))
                candidate = await self.prepare(profile)
            except Exception as error:
                why = _as_ours(error).message
                missed = Rescue(wish[0], wish[1] or 0, "fallback", "failed", "plan", ended=time.time(), reason=why)
                swap.rescues.append(missed)
                continue
            if await self._attempt(candidate, "fallback"):
                if is_again and wish == wishes[0]:
                    return Outcome("ready", candidate, is_back=True)
                wanted = swap.new if old is not None else swap.old
                who = f"'{candidate.name}'{' as shipped' if wish[1] == 0 else ''}"
                return Outcome("fallback", candidate, f"{who} serves instead of '{wanted}': {cause}")
        await self.supervisor.stop(between=STOPPED)
        return Outcome("crashed", None)

    async def _drain(self, old: Prepared) -> None:
        settings = old.settings
        with self.swap.during("drain", settings.drain_timeout) as stage:
            total = self.answers.n_begun()
            n_cut = 0
            if total or self.supervisor.state == "ready":
                n_cut = await within(None, self.abort, lambda: self._drained(stage, total, old), "")
            stage.detail = f"{max(0, total - n_cut)} finished, {n_cut} cancelled"

    async def _drained(self, stage: Stage, total: int, old: Prepared) -> int:
        """Wait for the answers that have begun; how many were ended instead."""
        s, began, n_cut = old.settings, time.monotonic(), 0
        while left := max(self.answers.n_begun(), self.dispatcher.n_active()):
            if self.supervisor.state in GONE:  # an answer between two of its choices would wait for nobody
                n_cut += await self.answers.break_off(STOPPED)
            stage.progress = Progress(max(0, total - left), total, "requests")
            # Again and again: one whose prompt is still read begins only after the others were ended.
            if s.drain_policy == "cancel" and time.monotonic() - began > s.drain_timeout:
                text = f"the answer was ended after {s.drain_timeout:g} s for a change of profile; send it again"
                n_cut += await self.answers.break_off(Unavailable(text, retry_after_s=RETRY_S))
            await asyncio.sleep(LOOK_S)
        stage.progress = Progress(total, total, "requests")
        return n_cut

    async def _stop(self, old: Prepared) -> None:
        with self.swap.during("stop", old.settings.stop_timeout) as stage:
            pid = self.supervisor.pid
            self.swap.gap_began = time.time()
            # Neither aborted nor limited here: the supervisor itself kills what does not leave in time.
            await self.supervisor.stop(between=STOPPED)
            stage.detail = f"process {pid} is gone" if pid else "there was no process"

    async def _try(self, swap: Swap, candidate: Prepared) -> float:
        """Start, warm, check; its tokens per second, or what it failed with."""
        s, trial = candidate.settings, Trial(self.supervisor, self.dispatcher, candidate, f"swap-{swap.id}")
        with swap.during("start", s.start_timeout) as stage:
            await self._limited(None, lambda: trial.start(stage, s.start_timeout), "")
        with swap.during("warm", s.warm_timeout) as stage:
            words = f"reading the weights and the warm-up prompt took longer than {s.warm_timeout:g} s"
            await self._limited(s.warm_timeout, lambda: trial.warm(stage), words)
        with swap.during("check", s.check_timeout) as stage:
            words = f"the probe was not answered within {s.check_timeout:g} s"
            speed = float(await self._limited(s.check_timeout, lambda: trial.check(stage), words))
            self.supervisor.accept()
            return speed

    async def _limited(self, limit_s: float | None, work: Callable[[], Any], refusal: str) -> Any:
        """A rescue cannot be aborted: nobody would serve."""
        return await within(limit_s, asyncio.Event() if self.swap.rescues else self.abort, work, refusal)

    async def _attempt(self, candidate: Prepared, why: Literal["rollback", "fallback"]) -> bool:
        swap = self.swap
        rescue = Rescue(candidate.name or "the command line's settings", candidate.rev, why)
        swap.rescues.append(rescue)
        swap.say(f"{why}: starting {rescue.profile}")
        # Its stages are its own: those of the swap show where the wanted profile failed.
        own = Swap(swap.id, swap.new, 0, rescue.profile, 0)
        following = asyncio.create_task(_follow(own, rescue))
        try:
            await self.supervisor.stop(between=STOPPED)
            await self._try(own, candidate)
            rescue.state = "ok"
        except Exception as error:
            rescue.state, rescue.reason = "failed", _as_ours(error).message
        finally:
            following.cancel()
            rescue.stage, rescue.ended = own.stage, time.time()
        swap.say(f"{why} {rescue.state} {rescue.json()['took_s']} s{': ' + rescue.reason if rescue.reason else ''}")
        return rescue.state == "ok"

    def _note(self, error: ColibriError) -> None:
        code = f"{self.swap.stage}_timeout" if isinstance(error, StageTimeout) else error.code
        self.swap.engine_lines = self.supervisor.log_tail[-8:]
        self.swap.fail(error, code, ADVICE.get(code, "the log has the engine's own words"))


def _as_ours(error: Exception) -> ColibriError:
    """A defect of Colibri is a failure like others: somebody must serve all the same."""
    if isinstance(error, ColibriError):
        return error
    log.error("the swap met a defect of Colibri", exc_info=error)
    return EngineFailed(f"the swap met {type(error).__name__}; the log has the place")


async def _follow(own: Swap, rescue: Rescue) -> None:
    while True:
        rescue.stage = own.stage
        await asyncio.sleep(LOOK_S)
