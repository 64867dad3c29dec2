"""What `/metrics` counts, in three groups: llama-server's names, vLLM's shapes, and our own. Not here: HTTP, routes.

Only figures that are measured stand here; a series appears when something fills it. Colons are kept in the first group
alone, for dashboards made for llama-server.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from appliance.pace import Pace
from appliance.request import Done, Event, Piece, Prefill

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# One old box may need an hour for one answer, so the last buckets are far out.
SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)
PER_TOKEN = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
KEPT = 512
"""Latest first-token times kept for the percentiles of /admin/state."""


@dataclass(slots=True)
class Live:
    """Figures that are read when somebody asks, as (name, help, {labels: value}); `kind` is gauge or counter."""

    name: str
    help: str
    values: Mapping[tuple[tuple[str, str], ...], float]
    kind: str = "gauge"


class _Asked(Collector):
    def __init__(self, ask: Callable[[], Iterable[Live]]) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for live in self._ask():
            labels = [name for name, _ in next(iter(live.values), ())]
            family = CounterMetricFamily if live.kind == "counter" else GaugeMetricFamily
            metric = family(live.name, live.help, labels=labels)
            for key, value in live.values.items():
                metric.add_metric([word for _, word in key], value)
            yield metric


class Metrics:
    """All series of one service. `model` is the public id, see `serves`; `clock` is in seconds and only grows;
    `on_answer` is told of each whole answer, with the seconds to its first piece."""

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        # A second series for each counter, which no dashboard reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.clock = clock
        self.registry = CollectorRegistry()
        self.counts = {"finished": 0, "failed": 0, "cancelled": 0, "refused": 0}
        self.pace = Pace()
        self.on_answer: Callable[[Done, float | None], None] = lambda done, first_s: None
        self._first_token_s: deque[float] = deque(maxlen=KEPT)
        self._model = model
        self._most_tokens = 0
        self._llama()
        self._vllm()
        self._own()

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(f"colibri_{name}", help, ["model_name"], buckets=buckets, registry=self.registry)

    def _llama(self) -> None:
        self._l_prompt = self._counter("llamacpp:prompt_tokens_total", "Prompt tokens computed")
        self._l_prompt_s = self._counter("llamacpp:prompt_seconds_total", "Seconds spent on prompts")
        self._l_predicted = self._counter("llamacpp:tokens_predicted_total", "Tokens generated")
        self._l_predicted_s = self._counter("llamacpp:tokens_predicted_seconds_total", "Seconds spent generating")
        self._l_prompt_rate = self._gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second, last answer")
        self._l_predicted_rate = self._gauge("llamacpp:predicted_tokens_seconds", "Tokens per second, last answer")
        self._l_max = self._gauge("llamacpp:n_tokens_max", "Most tokens a sequence ever had")

    def _vllm(self) -> None:
        self._prompt = self._counter("colibri_prompt_tokens_total", "Prompt tokens of finished answers", "model_name")
        self._generated = self._counter("colibri_generation_tokens_total", "Generated tokens", "model_name")
        spec = "colibri_spec_decode_num_"
        self._drafted = self._counter(f"{spec}draft_tokens_total", "Guessed tokens that were computed", "model_name")
        self._accepted = self._counter(f"{spec}accepted_tokens_total", "Guessed tokens that were right", "model_name")
        self._success = self._counter(
            "colibri_request_success_total", "Finished answers", "model_name", "finished_reason")  # fmt: skip
        self._asked = self._counter("colibri_prefix_cache_queries_total", "Prompt tokens looked up", "model_name")
        self._shared = self._counter("colibri_prefix_cache_hits_total", "Prompt tokens not computed", "model_name")
        self._ttft = self._histogram("time_to_first_token_seconds", "From arrival to the first piece")
        self._gap = self._histogram("inter_token_latency_seconds", "Between tokens, as the API sees them", PER_TOKEN)
        self._e2e = self._histogram("e2e_request_latency_seconds", "From arrival to the end of the answer")
        self._queue = self._histogram("request_queue_time_seconds", "From arrival to the engine")
        self._prefill = self._histogram("request_prefill_time_seconds", "Reading the prompt")
        self._decode = self._histogram("request_decode_time_seconds", "Generating the answer")

    def _own(self) -> None:
        self._rejected = self._counter("colibri_rejected_total", "Requests refused for want of room", "reason")
        self._cancelled = self._counter("colibri_cancelled_total", "Answers nobody waited for any more", "phase")
        self._failures = self._counter("colibri_failed_total", "Answers that broke off", "code")
        self._requests = self._counter("colibri_http_requests_total", "Answered HTTP requests", "route", "status")
        self._loops = self._counter("colibri_loops_total", "Answers ended because they only repeated", "model_name")
        self._unfit = self._counter("colibri_schema_failures_total", "Cut before they fitted a schema", "model_name")
        self._handoffs = self._counter("colibri_handoffs_total", "Answers that hand over to a person", "reason")
        self._switches = self._counter("colibri_profile_switches_total", "Ended swaps by how they ended", "state")
        self._switch_s = Histogram(
            "colibri_profile_switch_seconds", "From the order to the end of a swap", ["result"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip

    def ask(self, source: Callable[[], Iterable[Live]]) -> None:
        """Let `source` add figures at each scrape."""
        self.registry.register(_Asked(source))

    def page(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)

    def serves(self, model: str) -> None:
        """From now on answers are of this model; its name is the label `model_name`."""
        self._model = model

    def switched(self, state: str, seconds: float) -> None:
        """A swap has ended in `state`, so many seconds after it was ordered."""
        self._switches.labels(state).inc()
        self._switch_s.labels(state).observe(seconds)

    def handed_over(self, reason: str) -> None:
        """A client got the hand-over text in place of an answer."""
        self._handoffs.labels(reason).inc()

    def unfit(self) -> None:
        """An answer that was to fit a schema ended before it did."""
        self._unfit.labels(self._model).inc()

    def answered(self, route: str, status: int) -> None:
        """An HTTP answer went out; `route` is a pattern of the router, never a client's path."""
        self._requests.labels(route, str(status)).inc()

    def percentiles(self) -> dict[str, float | None]:
        """Median and 95th percentile of the latest first-token times in milliseconds; None before two are known."""
        if len(self._first_token_s) < 2:
            return {"p50_ms": None, "p95_ms": None}
        cuts = quantiles(self._first_token_s, n=20, method="inclusive")
        return {"p50_ms": round(cuts[9] * 1000, 1), "p95_ms": round(cuts[18] * 1000, 1)}

    def refused(self, code: str) -> None:
        """A request never ran: queue full, waited too long, no engine."""
        self.counts["refused"] += 1
        self._rejected.labels(code).inc()

    def watch(self) -> "Watch":
        """A stopwatch for one answer, started now."""
        return Watch(self, self.clock())

    # What a Watch tells

    def first_piece(self, since_submit_s: float) -> None:
        self._ttft.labels(self._model).observe(since_submit_s)
        self._first_token_s.append(since_submit_s)

    def next_piece(self, n_tokens: int, since_last_s: float) -> None:
        for _ in range(n_tokens):
            self._gap.labels(self._model).observe(since_last_s / n_tokens)

    def cancelled(self, phase: str) -> None:
        self.counts["cancelled"] += 1
        self._cancelled.labels(phase).inc()

    def failed(self, code: str) -> None:
        self.counts["failed"] += 1
        self._failures.labels(code).inc()

    def finished(self, done: Done, since_submit_s: float) -> None:
        model, times = self._model, done.timings
        prompt_s, predicted_s = times["prompt_ms"] / 1000, times["predicted_ms"] / 1000
        computed = done.n_prompt - done.n_cached
        self.counts["finished"] += 1
        self._l_prompt.inc(computed)
        self._l_prompt_s.inc(prompt_s)
        self._l_predicted.inc(done.n_generated)
        self._l_predicted_s.inc(predicted_s)
        self._l_prompt_rate.set(times["prompt_per_second"])
        self._l_predicted_rate.set(times["predicted_per_second"])
        self._most_tokens = max(self._most_tokens, done.n_prompt + done.n_generated)
        self._l_max.set(self._most_tokens)
        self._prompt.labels(model).inc(done.n_prompt)
        self._generated.labels(model).inc(done.n_generated)
        self._drafted.labels(model).inc(times.get("draft_n", 0))
        self._accepted.labels(model).inc(times.get("draft_n_accepted", 0))
        self._success.labels(model, done.finish_reason).inc()
        self._asked.labels(model).inc(done.n_prompt)
        self._shared.labels(model).inc(done.n_cached)
        if done.loop is not None:
            self._loops.labels(model).inc()
        self._queue.labels(model).observe(times["queue_ms"] / 1000)
        self._e2e.labels(model).observe(since_submit_s)
        self._prefill.labels(model).observe(prompt_s)
        self._decode.labels(model).observe(predicted_s)


@dataclass(slots=True)
class Watch:
    """Sees the events of one answer and tells the metrics what they mean; `phase` is where the work is."""

    metrics: Metrics
    began: float
    phase: str = "queue"
    n_generated: int = 0
    _last: float | None = None
    _first_s: float | None = None

    def see(self, event: Event) -> None:
        """One event, at the moment it came."""
        now = self.metrics.clock()
        match event:
            case Prefill():
                self.phase = "prefill"
            case Piece(ids=ids):
                self.phase = "decode"
                self.n_generated += len(ids)
                self.metrics.pace.count(len(ids), now)
                if self._last is None:
                    self._first_s = now - self.began
                    self.metrics.first_piece(self._first_s)
                elif ids:
                    self.metrics.next_piece(len(ids), now - self._last)
                self._last = now
            case Done():
                self.metrics.finished(event, now - self.began)
                self.metrics.on_answer(event, self._first_s)


def process_memory(pid: int | str = "self") -> dict[str, Any]:
    """`anon_bytes`, `rss_bytes`, `swap_bytes` and `major_faults` of a process; empty where /proc does not tell."""
    names = {"RssAnon:": "anon_bytes", "VmRSS:": "rss_bytes", "VmSwap:": "swap_bytes", "VmLck:": "locked_bytes"}
    try:
        with open(f"/proc/{pid}/status") as file:
            words = [line.split() for line in file]
        with open(f"/proc/{pid}/stat") as file:
            # The name in brackets may hold anything, so fields are counted from its end: majflt is the 10th after it.
            faults = int(file.read().rpartition(")")[2].split()[9])
    except (OSError, ValueError, IndexError):
        return {}
    found = {names[w[0]]: int(w[1]) * 1024 for w in words if w and w[0] in names}
    return {**found, "major_faults": faults}
