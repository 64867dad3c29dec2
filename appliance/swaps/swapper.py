"""Changes the profile that serves, and never leaves the box without an engine if any profile can be started. Not here:
the record (swap.py), its stages (change.py), files and plans (prepare.py), HTTP.

From the drain's first moment to the end nothing new starts: who comes waits in the queue, and before they go on their
requests are made anew for the model that then serves.
"""

import asyncio
import contextlib
import contextvars
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from appliance import logs
from appliance.dispatch import Dispatcher
from appliance.events import Events
from appliance.machine.host import read_machine
from appliance.machine.pagecache import cached_share
from appliance.profiles import BadProfile, Profile, ProfileStore, check
from appliance.settings import Resolved
from appliance.supervisor import Supervisor
from appliance.swaps.again import Again
from appliance.swaps.change import Answers, Change, Outcome, Wish, spares
from appliance.swaps.journal import Journal
from appliance.swaps.model_facts import identity
from appliance.swaps.planning import InForce, plan_document
from appliance.swaps.prepare import Prepare, Prepared, Resolve, freed_bytes, prepare
from appliance.swaps.refusals import KeyReused, NoSuchSwap, SwapEnded, SwapRunning, TooLate
from appliance.swaps.swap import SUCCEEDED, State, Swap
from appliance.swaps.trial import Aborted, within
from engine.errors import ColibriError, EngineDown, EngineFailed
from engine.planner import Machine

KEPT = 50
log = logs.get_logger("colibri.swap")


class Swapper:
    """One swap at a time, on one event loop. `in_force` serves since `since`; `degraded` is why that is not who was
    wanted; `is_undecided` from a hold until it is known who serves next; `again` rings while nobody serves. Whoever
    makes it sets `answers`, `serve` (the API speaks for this profile from now on) and `on_end`."""

    def __init__(self, *, supervisor: Supervisor, dispatcher: Dispatcher, store: ProfileStore, resolve: Resolve,
                 events: Events, journal: Journal, first: Prepared, degraded: str | None = None,
                 machine: Callable[[], Machine] = read_machine, prepare: Prepare = prepare) -> None:  # fmt: skip
        self.in_force = first
        self.since = time.time()
        self.degraded = degraded
        self.is_undecided = False
        self.ended: list[Swap] = []
        self.answers: Answers
        self.serve: Callable[[Prepared], None] = lambda prepared: None
        self.on_end: Callable[[Swap], None] = lambda swap: None
        self._supervisor, self._dispatcher, self._store = supervisor, dispatcher, store
        self._resolve, self._events, self._journal = resolve, events, journal
        self._machine, self._prepared = machine, prepare
        self._current: Swap | None = None
        self._abort: asyncio.Event | None = None  # of the running swap, as long as it can be aborted
        self._crashed: ColibriError | None = None
        self._cause = ""
        self._owed: ColibriError | None = None
        self._task: asyncio.Task[None] | None = None
        self.again = Again()
        dispatcher.rescue = self._will_rescue

    # What can be asked

    @property
    def current(self) -> Swap | None:
        """The running swap, with fresh counts of who waits for it."""
        if self._current is not None:
            self._current.held |= self._dispatcher.held()
        return self._current

    def state(self) -> dict[str, Any]:
        """The word for people and, where there is something to say, why."""
        if (swap := self._current) is not None and swap.stage != "plan":
            return {"state": "draining" if swap.stage == "drain" else "swapping", "reason": swap.text}
        engine = self._supervisor.state
        if self._crashed is not None or engine == "crashed":
            error = self._crashed or self._supervisor.error
            return {"state": "crashed", "reason": error.message if error else None}
        if engine == "ready":
            return {"state": "degraded" if self.degraded else "ready", "reason": self.degraded}
        return {"state": "stopped" if engine == "stopped" else "loading", "reason": None}

    def swaps(self) -> list[Swap]:
        """The newest first, the running one included."""
        return [*([self.current] if self.current else []), *reversed(self.ended)]

    def past(self) -> list[dict[str, Any]]:
        """Ended swaps as documents, the oldest first, those of earlier lives of this service too."""
        return self._journal.past

    def find(self, swap_id: str) -> dict[str, Any]:
        """Its document; raises NoSuchSwap."""
        for swap in self.swaps():
            if swap.id == swap_id:
                return swap.json()
        for document in reversed(self.past()):
            if document.get("id") == swap_id:
                return dict(document)
        running = [self._current.id] if self._current else []
        known = ", ".join([*running, *(str(one.get("id")) for one in self.past()[:-9:-1])]) or "none yet"
        raise NoSuchSwap(f"there is no swap '{swap_id[:40]}'; known: {known}")

    async def plan(self, name: str, text: str | None = None) -> dict[str, Any]:
        """What a swap to the profile (or to this text of it) would do; raises what makes the profile unusable."""
        profile = self._store.load(name) if text is None else self._draft(name, text)
        resolved = self._resolve({**profile.values, "name": profile.name})
        snapshot = self._dispatcher.snapshot()
        requests = {
            "running": len(snapshot["running"]), "waiting": len(snapshot["waiting"]),
            "held_limit": self.in_force.settings.max_queue,
            "eta_s": max((one["eta_ms"] or 0 for one in snapshot["running"]), default=0) / 1000 or None,
        }  # fmt: skip
        now = self.in_force
        document: dict[str, Any] = await asyncio.to_thread(
            plan_document, profile, resolved.settings, self._machine(), freed_bytes=freed_bytes(self._supervisor.pid),
            requests=requests,
            in_force=InForce(now.name, now.rev, now.settings, now.identity), past=self._past_of(name),
            overruled=_overruled(profile, resolved),
        )  # fmt: skip
        return document

    # What can be done

    async def begin(self, to: str, *, rev: int | None = None, note: str = "", by: str = "",
                    idempotency_key: str | None = None) -> Swap:  # fmt: skip
        """Plan a swap and set it going; raises what forbids it before anything is touched."""
        if (known := self._same_key(to, idempotency_key)) is not None:
            return known
        if (running := self.current) is not None:
            text = f"swap {running.id} to '{running.new}' is under way; wait for it or abort it"
            raise SwapRunning(text, swap_id=running.id)
        profile = self._store.load(to, rev)
        swap = self._record(profile, note, by, idempotency_key)
        abort = self._abort = asyncio.Event()
        try:
            with swap.during("plan") as stage:
                candidate = await within(None, abort, lambda: self._prepare(profile), "")
                served = candidate.model
                swap.cached = cached_share(Path(candidate.worker.model))
                swap.weights_bytes = int(served.meta["size"])
                stage.detail = f"{served.id}, {candidate.n_ctx} positions, {served.meta['load_mode']}"
                reopens_s = self._estimate(candidate)
        except BaseException as error:
            advice = "nothing was touched; mend the profile or its model, then try again"
            if isinstance(error, ColibriError):
                swap.fail(error, advice="nothing was stopped" if isinstance(error, Aborted) else advice)
                error.extra.setdefault("swap_id", swap.id)
            elif isinstance(error, asyncio.CancelledError):
                swap.fail(Aborted("whoever asked for it left before it was planned"), advice="ask again")
                swap.key = None  # the same asking once more begins a new one
            else:
                swap.fail(EngineFailed(f"the plan met {type(error).__name__}; the log has the place"), advice=advice)
            self._finish(swap, "aborted" if isinstance(error, Aborted) else "refused")
            raise
        if self._supervisor.state == "ready" and candidate.needs_no_restart(self.in_force):
            self._abort = None
            self._go(swap, self._apply(swap, candidate))
            assert self._task is not None
            await asyncio.shield(self._task)  # whoever asked may leave, what is begun is ended
        else:
            self._hold(reopens_s)
            swap.stage = "drain"
            self._go(swap, self._carry_out(swap, self._change(swap).run(self.in_force, candidate)))
        return swap

    async def abort(self, swap_id: str, by: str = "") -> Swap:
        """Ask a running swap to stop; before STOP nothing happened, after it the old profile is started again."""
        swap = self._current
        if swap is None or swap.id != swap_id:
            state = self.find(swap_id)["state"]
            raise SwapEnded(f"swap {swap_id} has ended already ({state}); there is nothing to abort")
        if swap.rescues or self._abort is None:
            raise TooLate(f"swap {swap_id} is being rolled back or applied already; that cannot be aborted")
        if not swap.is_aborting:
            swap.is_aborting = True
            swap.say(f"abort asked for{' by ' + by if by else ''}")
            self._abort.set()
        return swap

    async def close(self) -> None:
        """The service ends; a running swap is noted as cut."""
        self.again.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._current is not None:
            self._finish(self._current, "cut")

    def resumed(self) -> None:
        """Tell what became of swaps that the end of an earlier service cut."""
        for begun in self._journal.cut:
            who = self.in_force.name or "the command line"
            text = f"swap {begun['id']} to '{begun['to']}' was cut by the end of the service; {who} serves"
            self._tell(text, "warning", swap=begun["id"], state="cut")
            self._journal.ended({**begun, "state": "cut", "ended": time.time(), "text": text, "stages": []})

    # Inside

    def _go(self, swap: Swap, work: Coroutine[Any, Any, None]) -> None:
        # A context of its own: its log lines are not those of the request that asked for it.
        self._task = asyncio.create_task(work, name=f"swap {swap.id}", context=contextvars.Context())

    def _hold(self, reopens_s: float | None = None) -> None:
        self._dispatcher.hold(reopens_s)
        self.is_undecided = True

    def _change(self, swap: Swap) -> Change:
        abort = self._abort or asyncio.Event()
        return Change(swap, self._supervisor, self._dispatcher, self.answers, self._store.load, self._prepare, abort)

    async def _carry_out(self, swap: Swap, work: Coroutine[Any, Any, Outcome]) -> None:
        try:
            outcome = await work
        except Exception as error:  # a defect of ours must not leave the queue on hold
            log.exception("the swap met a defect of Colibri")
            swap.fail(EngineFailed(f"the swap met {type(error).__name__}; the log has the place"))
            outcome = Outcome("crashed", None)
        self.is_undecided = False
        if swap.gap_began is not None:
            swap.gap_ended = time.time()
        try:
            await self._settle(swap, outcome)
        finally:
            self._finish(swap, outcome.state)

    async def _settle(self, swap: Swap, outcome: Outcome) -> None:
        if outcome.serving is None:
            self._crashed = self._nobody(swap.reason.message if swap.reason else "the log says why")
            self._dispatcher.shut(self._crashed)
            return
        self._crashed = None
        self.again.reset()
        if outcome.state != "aborted":
            self._dispatcher.forget_speeds()
            # Who served instead of another before, and serves again, still is that.
            self._take(outcome.serving, self.degraded if outcome.is_back else outcome.degraded)
        await self._release(swap)

    async def _apply(self, swap: Swap, candidate: Prepared) -> None:
        """Nothing that the engine was told has changed: the API speaks for the new profile from now on."""
        now = self.in_force
        same = (now.name, now.settings) == (candidate.name, candidate.settings) and not self.degraded
        is_done = same and now.rev == candidate.rev
        try:
            if not is_done:
                self._dispatcher.hold()
                self._take(candidate, None)
                await self._release(swap)
        finally:
            self._finish(swap, "unchanged" if is_done else "applied")

    def _take(self, candidate: Prepared, degraded: str | None) -> None:
        self.in_force, self.since, self.degraded = candidate, time.time(), degraded
        limits = candidate.settings
        self._dispatcher.limit(limits.max_queue, limits.queue_timeout, limits.max_queue_batch)
        self.serve(candidate)
        if candidate.name:
            self._journal.serves(candidate.name, candidate.rev)

    async def _release(self, swap: Swap) -> None:
        """Who waited goes on, with requests made for whoever serves now."""
        held = self._dispatcher.held()
        try:
            refused = await self.answers.renew()
            swap.held |= {**held, "kept": max(0, held["n"] - refused)}
        finally:
            self._dispatcher.release()

    def _record(self, profile: Profile, note: str, by: str, key: str | None) -> Swap:
        now = self.in_force
        swap = Swap(self._journal.next_id(), now.name, now.rev, profile.name, profile.rev, note, by, key)
        self._current = swap
        self.again.cancel()
        swap.tell = lambda text: self._tell(f"swap {swap.id} {swap.old} -> {swap.new}: {text}", "info", swap=swap.id)
        swap.say(f"accepted{' from ' + by if by else ''}{', note: ' + note if note else ''}")
        self._journal.begun(swap.json())
        return swap

    def _finish(self, swap: Swap, state: State) -> None:
        swap.end(state)
        self._current = self._abort = None
        self.ended = [*self.ended, swap][-KEPT:]
        level = "info" if state in SUCCEEDED else "warning"
        self._tell(f"swap {swap.id}: {swap.text}", level, swap=swap.id, state=state)
        self._journal.ended(swap.json())
        self.on_end(swap)
        if self._crashed is not None and state != "cut":
            self.again.later(self._try_again)
        owed, self._owed = self._owed, None
        if owed is not None and state != "cut" and self._supervisor.state == "crashed":
            self._dispatcher.worker_gone(owed)

    def _will_rescue(self, error: ColibriError) -> bool:
        """Nobody will serve any more, says the supervisor: True when something else is being tried."""
        if self._current is not None:
            self._owed = error  # should it end without a look at the engine, this is asked again
            return True
        now = self.in_force
        if self._supervisor.state != "crashed" or now.profile is None:
            return False
        # Another file than the one that was served needs other words and another plan, not another profile.
        is_other = identity(Path(now.worker.model)) != now.identity
        wishes = [*([(now.name, None)] if is_other else []), *spares(now.settings.fallback)]
        profile = self._first_of(wishes, None if is_other else (now.name, now.rev))
        if profile is None:
            self._crashed = self._nobody(error.message)
            self.again.later(self._try_again)
            return False
        self._rescue(profile, wishes, is_other, error, "the engine gave up")
        return True

    def _try_again(self) -> None:
        """Nobody serves, and what was short may be there again: who served last, then the spares."""
        now = self.in_force
        served = [(now.name, None)] if now.profile is not None else []
        wishes = [*served, *spares(now.settings.fallback)]
        profile = self._first_of(wishes, None)
        if profile is not None and self._current is None:
            self._rescue(profile, wishes, bool(served), EngineDown(self._cause), "nobody serves")

    def _rescue(self, profile: Profile, wishes: list[Wish], is_again: bool, error: ColibriError, note: str) -> None:
        swap = self._record(profile, note, "colibri", None)
        swap.stage = "start"
        swap.fail(error, advice="the log has the engine's own words")
        swap.engine_lines = self._supervisor.log_tail[-8:]
        self._hold()
        self._go(swap, self._carry_out(swap, self._change(swap).rescue(None, wishes, is_again)))

    def _nobody(self, cause: str) -> EngineDown:
        self._cause, after_s = cause, self.again.delay_s
        text = f"no profile could be started: {cause}; it is tried again in {after_s:.0f} s, or change the profile now"
        return EngineDown(text, retry_after_s=math.ceil(after_s))

    def _first_of(self, wishes: list[Wish], but: tuple[str, int] | None) -> Profile | None:
        for name, rev in wishes:
            with contextlib.suppress(ColibriError):
                profile = self._store.load(name, rev)
                if (profile.name, profile.rev) != but:
                    return profile
        return None

    def _same_key(self, to: str, key: str | None) -> Swap | None:
        known = next((swap for swap in self.swaps() if key is not None and swap.key == key), None)
        if known is not None and known.new != to:
            raise KeyReused(f"this Idempotency-Key belongs to a swap to '{known.new}'; send a new one")
        return known

    async def _prepare(self, profile: Profile) -> Prepared:
        settings = self._resolve({**profile.values, "name": profile.name}).settings
        return await asyncio.to_thread(self._prepared, settings, self._machine(), profile, self._supervisor.pid)

    def _draft(self, name: str, text: str) -> Profile:
        values, problems = check(text, name, self._store.names())
        if values is None:
            raise BadProfile.of(name, problems)
        return Profile(name, 0, "", "", "edited", text, values)

    def _past_of(self, name: str) -> list[dict[str, Any]]:
        return [one for one in self._journal.past if one.get("to") == name and one.get("state") == "ready"]

    def _estimate(self, candidate: Prepared) -> float | None:
        """Seconds until it serves: as long as it took the last time."""
        past = self._past_of(candidate.name)
        return float(past[-1]["ended"]) - float(past[-1]["started"]) if past else None

    def _tell(self, text: str, level: Any, **facts: Any) -> None:
        log.log(20 if level == "info" else 30, "%s", text)
        self._events.tell("swap", text, level, **facts)


def _overruled(profile: Profile, resolved: Resolved) -> dict[str, str]:
    """Keys of the profile that this process's environment or flags decide otherwise, and by what."""
    sources = {key: row.source for key, row in resolved.provenance.items()}
    return {key: sources[key] for key in profile.values if not sources.get(key, "profile").startswith("profile")}
