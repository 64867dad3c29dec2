"""One row for each profile: what it asks for, whether it fits, when it served. Not here: HTTP, judging, planning.

A list is asked for every few seconds by everybody who looks at it, so judgements are kept by a text's tag and plans for
PLAN_S; whatever a person changes (a text, the profile in force) changes the key under which a plan is kept.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.events import one_line
from appliance.profiles import Checked, NoSuchProfile, ProfileStore, StoredText
from appliance.swaps.prepare import Prepared
from appliance.swaps.swap import Swap
from engine.errors import ColibriError

PLAN_S = 5.0
"""Free memory moves; older than that a plan says little."""
SUMMARY_CHARS = 200
KEPT = 256
SERVED = ("ready", "applied")
PLANNED = (
    "model", "parallel", "threads", "type_k", "type_v", "weights_bytes", "kv_bytes", "engine_bytes", "total_bytes",
    "budget_bytes", "spare_bytes", "cached",
)  # fmt: skip


class Plans(Protocol):
    """The swapper, as a list needs it."""

    since: float

    @property
    def in_force(self) -> Prepared: ...
    @property
    def current(self) -> Swap | None: ...
    def past(self) -> list[dict[str, Any]]: ...
    async def plan(self, name: str, text: str | None = None) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a row needs of a checked text."""

    n_errors: int
    n_warnings: int
    summary: str
    values: dict[str, Any]

    @classmethod
    def of(cls, checked: Checked) -> "_Judged":
        n_errors = sum(problem.severity == "error" for problem in checked.problems)
        summary = one_line(checked.summary, SUMMARY_CHARS)
        return cls(n_errors, len(checked.problems) - n_errors, summary, checked.values)


class Listing:
    def __init__(self, store: ProfileStore, plans: Plans, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._plans, self._clock = store, plans, clock
        self._judged: dict[tuple[str, ...], _Judged] = {}
        self._planned: dict[tuple[Any, ...], tuple[float, dict[str, Any]]] = {}
        self._turn = asyncio.Lock()

    async def rows(self) -> list[dict[str, Any]]:
        """By name; also profiles that are wrong, and those that are a draft only."""
        async with self._turn:
            found = await asyncio.to_thread(self._read)
            return [await self._row(*one) for one in found]

    def _read(self) -> list[tuple[str, StoredText | None, _Judged | None, bool]]:
        names = self._store.names()
        drafts = [name for name in self._store.names(drafts=True) if self._store.draft(name) is not None]
        return [(name, *self._stored(name, names), name in drafts) for name in sorted({*names, *drafts})]

    def _stored(self, name: str, names: Sequence[str]) -> tuple[StoredText | None, _Judged | None]:
        try:
            stored = self._store.text(name)
        except NoSuchProfile:  # a draft only, or deleted just now
            return None, None
        key = (name, stored.etag, *names)
        if key not in self._judged:
            if len(self._judged) >= KEPT:
                self._judged.clear()
            self._judged[key] = _Judged.of(self._store.examine(name))
        return stored, self._judged[key]

    async def _row(
        self, name: str, stored: StoredText | None, judged: _Judged | None, has_draft: bool
    ) -> dict[str, Any]:
        now = self._plans.in_force
        is_good = judged is not None and judged.n_errors == 0
        plan = await self._plan(name, stored) if stored is not None and is_good else {}
        values = judged.values if judged is not None else {}
        state = "draft" if stored is None else "valid" if is_good else "errors"
        return {
            "name": name, "rev": stored.rev if stored else 0, "etag": stored.etag if stored else None,
            "source": stored.source if stored else "edited", "state": "active" if name == now.name else state,
            "n_errors": judged.n_errors if judged else 0, "n_warnings": judged.n_warnings if judged else 0,
            "summary": judged.summary if judged else "", **dict.fromkeys(PLANNED),
            "ctx_size": plan.get("n_ctx") or values.get("ctx_size") or None,
            "fit": plan.get("verdict", "?"), "fit_reason": plan.get("reason"),
            **{key: plan[key] for key in PLANNED if key in plan}, **self._served(name),
            "is_fallback": name == now.settings.fallback, "has_draft": has_draft,
        }  # fmt: skip

    async def _plan(self, name: str, stored: StoredText) -> dict[str, Any]:
        now, swap = self._plans.in_force, self._plans.current
        key = (name, stored.etag, now.name, now.rev, self._plans.since, swap.id if swap else None)
        kept = self._planned.get(key)
        if kept is None or self._clock() - kept[0] > PLAN_S:
            try:
                plan = await self._plans.plan(name)
            except ColibriError as error:
                plan = {"verdict": "?", "reason": error.message}
            if len(self._planned) >= KEPT:
                self._planned.clear()
            self._planned[key] = kept = (self._clock(), plan)
        return kept[1]

    def _served(self, name: str) -> dict[str, Any]:
        """When it served last, who had asked for it, and how fast its probe was."""
        past = [one for one in reversed(self._plans.past()) if one.get("to") == name and one.get("state") in SERVED]
        speed = next((one["tok_s"] for one in past if one.get("tok_s") is not None), None)
        last = past[0] if past else {}
        used = self._plans.since if name == self._plans.in_force.name else last.get("ended")
        return {"last_used": used, "last_by": str(last.get("by", "")), "last_tok_s": speed}
