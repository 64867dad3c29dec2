"""From "swap to this" to the request that does it, and who shows a swap when. Not here: dialogs, the swap's panel.

The request is sent once for each time somebody says yes, with the revision that was reviewed and a key of its own: when
the answer is lost on the way, it is sent again with the same key, and the service knows it for the same request.
"""

import asyncio
import uuid
from typing import TYPE_CHECKING

from tui.client import ClientError
from tui.dialogs.pick import Pick
from tui.dialogs.review import Answer, Review
from tui.panels.report import FAILED
from tui.snap import Facts, Snap

if TYPE_CHECKING:
    from tui.app import ColibriApp

NOBODY = "-"  # what the status line shows where no profile is in force
TRIES = 4
PAUSE_S = 0.5
JUST_FAILED_S = 600.0  # a failure younger than this opens its report when the program starts


async def start(app: "ColibriApp", name: str | None = None, note: str = "") -> None:
    """The entry of `s`, `:swap P` and ctrl+r; a second call while the first still asks does nothing."""
    watch: SwapWatch = app.swap_watch
    if name == NOBODY:
        name = last_profile(app.snap) or None
    if running := running_id(app.snap):
        watch.show(running)
        return
    if watch.is_asking:
        return
    watch.is_asking = True
    try:
        await review_and_swap(app, name, note)
    finally:
        watch.is_asking = False


async def review_and_swap(app: "ColibriApp", name: str | None = None, note: str = "") -> str | None:
    """Pick if need be, plan, ask, send. The id of the swap that was begun, or None."""
    if reason := app.why_not():
        app.notify(f"No swap: {reason}.", severity="warning", markup=False)
        return None
    try:
        name = name or await pick(app, "Swap to which profile?")
        if name is None:
            return None
        chosen = name

        async def plan() -> Facts:
            return Facts(await app.client.post("/admin/plan", {"name": chosen}))

        first = await plan()
        must_say_why = app.config["confirm_note"] == "required"
        answer = await app.ask(Review(first, app.snap.facts, note, app.why_not(), plan, must_say_why))
        return None if answer is None else await send(app, chosen, answer)
    except ClientError as error:
        complain(app, f"No swap to {name or 'another profile'}: {error.message}")
        return None


async def pick(app: "ColibriApp", title: str) -> str | None:
    """A name from the list of the service."""
    listed = Facts(await app.client.get("/admin/profiles"))
    return await app.ask(Pick(title, listed.rows("profiles")))


async def send(app: "ColibriApp", name: str, answer: Answer) -> str | None:
    """POST /admin/swap, to the same end however often its answer is lost."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    body = {"to": name, "rev": answer.plan.whole("rev"), "note": answer.note}
    for attempt in range(1, TRIES + 1):
        try:
            swap = Facts(await app.client.post("/admin/swap", body, key))
            break
        except ClientError as error:
            if error.code == "profile_switch_in_progress":
                app.notify(f"{error.message}; here it is.", severity="warning", markup=False)
                app.swap_watch.show(str(error.facts.get("swap_id", "")))
                return None
            if error.status or attempt == TRIES:
                raise
            await asyncio.sleep(PAUSE_S * attempt)
    id = swap.text("id")
    if swap.text("state") == "unchanged":
        app.notify(f"{name} serves already with this very text; nothing was done.", markup=False)
    else:
        app.swap_watch.mine(id)
    app.poller.now()
    return id


def last_profile(snap: Snap) -> str:
    """The profile to start again after a crash: the one in force, else the one that the last swap came from."""
    return snap.text("profile.name") or snap.text("last_swap.from") or snap.text("last_swap.to")


def complain(app: "ColibriApp", words: str) -> None:
    app.notify(words, severity="error", timeout=10, markup=False)


def running_id(snap: Snap) -> str:
    """The id of the swap that the service is in, or empty."""
    return snap.text("swap.id") if snap.link.is_up and snap.has("swap.id") else ""


class SwapWatch:
    """Opens the swap's panel when it should open by itself; keeps which swaps are ours."""

    def __init__(self, app: "ColibriApp") -> None:
        self._app = app
        self._mine: set[str] = set()
        self._is_first = True
        self._from = ""
        self.is_asking = False
        self.wanted = ""  # the swap that the panel shows

    def mine(self, id: str) -> None:
        """This terminal began it: show it as it is."""
        self._mine.add(id)
        self.show(id)

    def show(self, id: str) -> None:
        """Bring the panel up with that swap."""
        if not id:
            return
        self.wanted = id
        if self._app.current_mode != "swap":
            self._from = self._app.current_mode
            self._app.switch_mode("swap")
        else:
            self._app.snap_signal.publish(self._app.snap)

    def leave(self) -> None:
        """Back to where the panel was opened from; the swap goes on."""
        self._app.switch_mode(self._from or "dash")

    def see(self, snap: Snap) -> None:
        """One good snapshot: at the first one a running swap or a fresh failure is shown."""
        if not snap.link.is_up or not snap.is_known:
            return
        first, self._is_first = self._is_first, False
        id = running_id(snap)
        if first and id:
            self.show(id)
        elif first and _just_failed(snap):
            self.show(snap.text("last_swap.id"))

    def banner(self) -> str:
        """A line while somebody's swap runs and is not looked at, else empty."""
        snap = self._app.snap
        id = running_id(snap)
        if not id or self._app.current_mode == "swap":
            return ""
        swap = snap.at("swap")
        way = f"{swap.text('from', '-')} -> {swap.text('to', '?')}"
        return f"swap {id} {way} by {swap.text('by', 'somebody')}, {swap.text('stage', 'accepted')}; s shows it"


def _just_failed(snap: Snap) -> bool:
    now, ended = snap.num("time"), snap.num("last_swap.ended")
    is_fresh = now is not None and ended is not None and now - ended < JUST_FAILED_S
    return is_fresh and snap.text("last_swap.state") in FAILED
