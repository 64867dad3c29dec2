"""What becomes an event: engine, answers, warnings; and what does not."""

from appliance.chronicle import AGAIN_S, Chronicle
from appliance.events import Events
from appliance.metrics import Metrics
from appliance.request import Done, Piece
from engine.errors import EngineDown, EngineFailed

DONE = Done("stop", None, 220, 0, 64, {"predicted_per_second": 11.62, "prompt_ms": 1.0, "predicted_ms": 1.0,
            "prompt_per_second": 1.0, "queue_ms": 0.0}, 7)  # fmt: skip


def test_the_engines_life_is_told() -> None:
    events = Events()
    chronicle = Chronicle(events, lambda: False)
    chronicle.worker_coming()
    chronicle.worker_ready({"pid": 41, "load_s": 0.42})
    chronicle.worker_frame({"type": "beat"})
    chronicle.worker_lost(EngineFailed("the engine process ended (signal 9)"))
    chronicle.worker_gone(EngineDown("it ended 5 times"))
    assert [(e.kind, e.level, e.text) for e in events.last(9)] == [
        ("worker", "info", "the engine is ready: process 41, loaded in 0.4 s"),
        ("worker", "error", "the engine process ended (signal 9)"),
        ("worker", "error", "it ended 5 times"),
    ]


def test_an_end_that_a_swap_ordered_is_no_news() -> None:
    events = Events()
    chronicle = Chronicle(events, lambda: True)
    chronicle.worker_lost(EngineFailed("stopped for a change of profile"))
    chronicle.worker_ready({"pid": 42})
    assert [e.text for e in events.last(9)] == ["the engine is ready: process 42"]


def test_an_answer_is_told_in_numbers_only() -> None:
    events, metrics = Events(), Metrics("m")
    metrics.on_answer = Chronicle(events, lambda: False).answered
    watch = metrics.watch()
    watch.see(Piece("a private word", [1, 2]))
    watch.see(DONE)
    (event,) = events.last(9)
    assert event.text.startswith("answered a prompt of 220 tokens with 64, 11.6 tok/s, first after 0.0")
    assert (event.kind, event.facts["finish"]) == ("request", "stop")
    assert "private" not in str(event.json())


def test_a_warning_is_told_when_it_is_new() -> None:
    now = [0.0]
    events = Events()
    chronicle = Chronicle(events, lambda: False, clock=lambda: now[0])
    chronicle.warned(["only 300 MiB of memory are available; end other programs"])
    now[0] += 1
    chronicle.warned(["only 299 MiB of memory are available; end other programs", "huge pages are off (never)"])
    now[0] += AGAIN_S - 1
    chronicle.warned(["only 298 MiB of memory are available; end other programs"])
    assert [e.text[:12] for e in events.last(9)] == ["only 300 MiB", "huge pages a"]
    now[0] += AGAIN_S
    chronicle.warned(["only 297 MiB of memory are available; end other programs"])
    assert events.last(1)[0].text.startswith("only 297")
