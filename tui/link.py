"""Keeps the service's newest answer: one poller, one listener, back-off and a countdown. Not here: HTTP, screens."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tui.client import Client, ClientError
from tui.pace import Pace
from tui.snap import Facts, Link, Snap

FIRST_WAIT_S = 0.5
MOST_WAIT_S = 10.0
KEPT_EVENTS = 200


class Poller:
    """`poll()` and `listen()` run for ever; each new `Snap` goes to `tell`."""

    def __init__(self, client: Client, pace: Pace, tell: Callable[[Snap], None], key_file: str = "") -> None:
        self.client = client
        self.pace = pace
        self.snap = Snap(link=Link(url=client.url))
        self._tell = tell
        self._key_file = key_file
        self._wake = asyncio.Event()
        self._wait_s = FIRST_WAIT_S
        self._events: deque[Facts] = deque(maxlen=KEPT_EVENTS)

    def now(self) -> None:
        """Ask at once: `r` on the banner, ctrl+r, the end of a pause."""
        self._wake.set()

    async def poll(self) -> None:
        """Ask, tell, wait. While the link is down each second tells how long the wait still is."""
        while True:
            while self.pace.is_paused:
                await self._wake.wait()
                self._wake.clear()
            wait_s = await self._ask()
            started, cpu = time.monotonic(), time.process_time()
            await self._rest(wait_s)
            took = time.monotonic() - started
            self.pace.tick(took - wait_s, took, time.process_time() - cpu)

    async def listen(self) -> None:
        """Follow the events for as long as the link is up; resume after the last one seen."""
        last, wait_s = "", FIRST_WAIT_S
        while True:
            if self.snap.link.is_up:
                try:
                    async for event in self.client.events(last):
                        wait_s = FIRST_WAIT_S
                        last = str(event.get("id") or last)
                        self._keep(Facts(event))
                except ClientError:
                    pass  # the poller says what is wrong with the link
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, MOST_WAIT_S)

    async def _ask(self) -> float:
        try:
            facts = Facts(await self.client.state())
        except ClientError as error:
            return self._failed(error)
        now, old = time.monotonic(), self.snap.link
        link = Link(url=old.url, is_up=True, at=now, back_at=old.back_at, was_down_s=old.was_down_s)
        if not old.is_up and old.lost_at is not None:
            link = replace(link, back_at=now, was_down_s=now - old.lost_at)
        self._wait_s = FIRST_WAIT_S
        self._publish(facts, link)
        return self.pace.period_s

    def _failed(self, error: ClientError) -> float:
        now, old = time.monotonic(), self.snap.link
        wait_s = self._wait_s
        self._wait_s = min(wait_s * 2, MOST_WAIT_S)
        link = replace(old, is_up=False, error=error.message, attempt=0 if old.is_up else old.attempt, refused="",
                       back_at=None)  # fmt: skip
        if old.is_up or old.lost_at is None:
            link = replace(link, lost_at=now, lost_epoch=time.time())
        if error.status in (401, 403):
            link = replace(link, refused=self._how_to_get_in(error))
        elif error.status == 404:
            link = replace(link, error="it has no /admin/state, so it is older than this program")
        self._publish(self.snap.facts, replace(link, attempt=link.attempt + 1, retry_at=now + wait_s))
        return wait_s

    def _how_to_get_in(self, error: ClientError) -> str:
        where = self._key_file or "the service's data folder, file keys"
        if not self.client.key:
            return f"there is no admin key in {where}; give the file with --key-file, or set COLIBRI_ADMIN_KEY"
        what = "is not known to it" if error.status == 401 else "is a user key, not an admin key"
        return f"the key from {where} {what}; take the line 'admin ...' of the file keys in its data folder"

    def _publish(self, facts: Facts, link: Link) -> None:
        link = replace(link, period_s=self.pace.period_s)
        self.snap = Snap(facts, link, self._merged(facts), time.monotonic())
        self._tell(self.snap)

    def _merged(self, facts: Facts) -> tuple[Facts, ...]:
        """The events of the stream and of the document, each once, oldest first."""
        for event in facts.rows("events"):
            self._keep(event)
        return tuple(self._events)

    def _keep(self, event: Facts) -> None:
        if event.text("kind") != "gap" and all(event.text("id") != known.text("id") for known in self._events):
            self._events.append(event)

    async def _rest(self, wait_s: float) -> None:
        """Sleep, in steps of a second while there is a countdown to show; end early when woken."""
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._wake.wait(), left if self.snap.link.is_up else min(left, 1.0))
            except TimeoutError:
                if not self.snap.link.is_up and until - time.monotonic() > 0.1:
                    self._publish(self.snap.facts, self.snap.link)
                continue
            self._wake.clear()
            return
