"""Screens whose work comes later: what each will show, what answers its question today. Not here: built screens."""

from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.units import count, percent, seconds, size
from tui.widgets.panel import Line, Panel


class Place(LiveScreen):
    """Two lines of words and a panel of live facts."""

    tab: ClassVar[str] = ""
    name_words: ClassVar[str] = ""
    will: ClassVar[str] = ""
    today: ClassVar[str] = ""

    def body(self) -> ComposeResult:
        yield Panel(self.name_words, id="place")

    def facts(self, snap: Snap) -> list[Line]:
        """What the snapshot already knows about it."""
        return []

    def show(self, snap: Snap) -> None:
        panel = self.query_one("#place", Panel)
        words: list[Line] = []
        for first, text in (("Later here: ", self.will), ("Today:      ", self.today)):
            words += wrap(text, max(panel.size.width, 30), initial_indent=first, subsequent_indent=" " * len(first))
        facts = self.facts(snap) if snap.is_known else ["no answer from the service yet"]
        panel.show([*words, "", *facts], right="not built yet")


class QueuePlace(Place):
    tab: ClassVar[str] = "queue"
    name_words: ClassVar[str] = "Queue"
    will: ClassVar[str] = "every request with its client, lane and ETA; cancel one, hold the queue."
    today: ClassVar[str] = "the requests on 1 Dash; the counts below."

    def facts(self, snap: Snap) -> list[Line]:
        lines: list[Line] = [
            f"running   {count(snap.num('slots.busy'))} of {count(snap.num('slots.total'))} slots",
            f"waiting   {count(snap.num('n_waiting'))}",
        ]
        for name in snap.at("lanes"):
            lane = snap.at(f"lanes.{name}")
            lines.append(f"  {name:<14} {count(lane.num('waiting')):>5} of {count(lane.num('limit'))}")
        lines.append(f"held      {count(snap.num('held.n'))}   refused {count(snap.num('requests.refused'))}")
        waiting = ((row.text("id"), (row.num("waited_ms") or 0) / 1000) for row in snap.rows("waiting"))
        return [*lines, *(f"  {id}  waits {seconds(waited_s)}" for id, waited_s in waiting)]


class BatchPlace(Place):
    tab: ClassVar[str] = "batch"
    name_words: ClassVar[str] = "Batch"
    will: ClassVar[str] = "jobs with progress, rate and finish time; add, pause, cancel, retry errors."
    today: ClassVar[str] = "POST /v1/chat/completions with service_tier batch; they wait in the lane below."

    def facts(self, snap: Snap) -> list[Line]:
        lane = snap.at("lanes.batch")
        return [f"batch lane   {count(lane.num('waiting'))} waiting of {count(lane.num('limit'))}"] if lane else []


class MemoryPlace(Place):
    tab: ClassVar[str] = "memory"
    name_words: ClassVar[str] = "Memory"
    will: ClassVar[str] = "a map of what is resident, and a planner with sliders for context and KV."
    today: ClassVar[str] = "the figures below; 'colibri plan MODEL' or m on 2 Profiles for what would fit."

    def facts(self, snap: Snap) -> list[Line]:
        worker, machine = snap.at("memory.worker"), snap.at("memory.machine")
        return [
            f"weights     {size(snap.num('worker.weights_bytes')):>12}",
            f"kv          {size(snap.num('worker.kv_bytes')):>12}   used {size(snap.num('memory.kv_used_bytes'))}",
            f"engine      {size(worker.num('rss_bytes')):>12}   private {size(worker.num('anon_bytes'))}",
            f"machine     {size(machine.num('total')):>12}   available {size(machine.num('available'))}"
            f"   page cache {size(machine.num('cached'))}",
            f"limit       {size(machine.num('limit')):>12}   used {size(machine.num('limit_used'))}",
            f"swap        {size(machine.num('swap_used')):>12}   of {size(machine.num('swap_total'))}"
            f"   {percent(machine.num('swap_used'), machine.num('swap_total'))}",
            f"from disk   {size(snap.num('memory.disk_read_s')):>12}/s"
            f"   major faults {count(snap.num('memory.major_faults_s'))}/s",
        ]


class BenchPlace(Place):
    tab: ClassVar[str] = "bench"
    name_words: ClassVar[str] = "Bench"
    will: ClassVar[str] = "a sweep over threads with its best point, to be taken into a profile."
    today: ClassVar[str] = "'colibri bench' on the box, while nobody else is served; speeds of now below."

    def facts(self, snap: Snap) -> list[Line]:
        return [
            f"threads    {count(snap.num('worker.threads'))} of {count(snap.num('cpu.cores'))} cores",
            f"prefill    {count(snap.num('speeds.prompt_per_second'))} tok/s",
            f"decode     {count(snap.num('speeds.predicted_per_second'))} tok/s",
        ]


class ChatPlace(Place):
    tab: ClassVar[str] = "chat"
    name_words: ClassVar[str] = "Chat"
    will: ClassVar[str] = "a scratch pad to try a prompt against the profile in force."
    today: ClassVar[str] = "'colibri chat' in a shell beside this one, or any client of the OpenAI API."

    def facts(self, snap: Snap) -> list[Line]:
        return [f"address    {snap.link.url}/v1", f"model      {snap.text('model.id', '-')}"]
