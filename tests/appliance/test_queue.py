"""The queue's decisions, read from a list of effects; no clock, no loop."""

from typing import Any

import pytest

from appliance.lane import LANES
from appliance.queue import PEOPLE_S, DeadlineUnreachable, Job, LaneLimit, Queue, Rates
from engine.errors import ColibriError, EngineDown, ModelLoading, QueueFull, QueueTimeout


class Recorder:
    def __init__(self) -> None:
        self.list: list[Any] = []
        self.errors: dict[str, ColibriError] = {}

    def start(self, job: Job) -> None:
        self.list.append(("start", job.id))

    def stop(self, job: Job) -> None:
        self.list.append(("stop", job.id))

    def drop(self, job: Job) -> None:
        self.list.append(("drop", job.id))

    def refuse(self, job: Job, error: ColibriError) -> None:
        self.list.append(("refuse", job.id))
        self.errors[job.id] = error

    def moved(self, job: Job, position: int, eta_s: float | None) -> None:
        self.list.append(("moved", job.id, position))

    def take(self) -> list[Any]:
        taken, self.list = self.list, []
        return taken


def make(slots: int = 1, waiting: int = 2, timeout_s: float | None = 100.0) -> tuple[Queue, Recorder]:
    recorder = Recorder()
    queue = Queue(recorder, {lane: LaneLimit(waiting, timeout_s) for lane in LANES})
    if slots:
        queue.open(slots, now=0.0)
    return queue, recorder


def job(name: str, lane: Any = "interactive", n_prompt: int = 100, **more: Any) -> Job:
    return Job(name, lane, n_prompt, **more)


def test_a_free_slot_starts_at_once_and_the_next_one_waits_first_in_line() -> None:
    queue, effects = make()
    queue.submit(job("a"), 1.0)
    queue.submit(job("b"), 1.0)
    assert effects.take() == [("start", "a"), ("moved", "b", 1)]
    queue.finish("a", 2.0)
    assert effects.take() == [("start", "b")]


def test_two_slots_run_two() -> None:
    queue, effects = make(slots=2)
    for name in "abc":
        queue.submit(job(name), 0.0)
    assert effects.take() == [("start", "a"), ("start", "b"), ("moved", "c", 1)]
    queue.finish("b", 1.0)
    assert effects.take() == [("start", "c")]


def test_lanes_are_served_in_their_order_and_first_come_inside_a_lane() -> None:
    queue, effects = make(waiting=5)
    queue.submit(job("running"), 0.0)
    for name, lane in (
        ("b1", "batch"),
        ("f1", "fallback"),
        ("i1", "interactive"),
        ("b2", "batch"),
        ("i2", "interactive"),
    ):
        queue.submit(job(name, lane), 0.0)
    assert [waiting.id for waiting in queue.waiting()] == ["i1", "i2", "f1", "b1", "b2"]
    effects.take()
    order = []
    running = "running"
    while queue.active():
        queue.finish(running, 1.0)
        started = [e[1] for e in effects.take() if e[0] == "start"]
        order += started
        running = started[0] if started else ""
    assert order == ["i1", "i2", "f1", "b1", "b2"]


def test_one_who_is_overtaken_hears_it() -> None:
    queue, effects = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("batch", "batch"), 0.0)
    effects.take()
    queue.submit(job("person"), 0.0)
    assert effects.take() == [("moved", "person", 1), ("moved", "batch", 2)]


def test_a_full_lane_refuses_with_a_time_and_other_lanes_are_open() -> None:
    queue, effects = make(waiting=1)
    for name in ("a", "b", "c"):
        queue.submit(job(name), 0.0)
    error = effects.errors["c"]
    assert isinstance(error, QueueFull)
    assert error.extra["retry_after_s"] == 5
    queue.submit(job("d", "batch"), 0.0)
    assert "d" not in effects.errors


def test_no_waiting_allowed_still_runs_one() -> None:
    queue, effects = make(waiting=0)
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 0.0)
    assert ("start", "a") in effects.list
    assert isinstance(effects.errors["b"], QueueFull)


def test_while_loading_requests_wait_unless_nobody_may() -> None:
    queue, effects = make(slots=0)
    queue.pause(0.0, reopens_s=40.0)
    queue.submit(job("a"), 10.0)
    assert effects.take() == [("moved", "a", 1)]
    queue.open(1, 20.0)
    assert effects.take() == [("start", "a")]
    strict, refused = make(slots=0, waiting=0)
    strict.pause(0.0, reopens_s=40.0)
    strict.submit(job("a"), 10.0)
    assert isinstance(refused.errors["a"], ModelLoading)
    assert refused.errors["a"].extra["retry_after_s"] == 30


def test_closing_refuses_all_who_wait_and_who_come() -> None:
    queue, effects = make()
    for name in ("a", "b", "c"):
        queue.submit(job(name), 0.0)
    effects.take()
    queue.close(EngineDown("crashed"), 1.0)
    queue.submit(job("d"), 1.0)
    assert effects.take() == [("refuse", "b"), ("refuse", "c"), ("refuse", "d")]
    queue.finish("a", 2.0)
    queue.pause(3.0)
    queue.submit(job("e"), 3.0)
    assert effects.take() == [("moved", "e", 1)]


def test_cancel_while_waiting_touches_nobody_else() -> None:
    queue, effects = make()
    for name in ("a", "b", "c"):
        queue.submit(job(name), 0.0)
    effects.take()
    queue.cancel("b", 1.0)
    assert effects.take() == [("drop", "b"), ("moved", "c", 1)]


def test_a_running_job_keeps_its_slot_until_the_engine_has_left_its_layer() -> None:
    queue, effects = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 0.0)
    effects.take()
    queue.cancel("a", 1.0)
    queue.cancel("a", 1.0)
    assert effects.take() == [("stop", "a")]
    queue.finish("a", 1.1)
    assert effects.take() == [("start", "b")]


def test_cancel_and_finish_of_unknown_jobs_do_nothing() -> None:
    queue, effects = make()
    queue.cancel("ghost", 0.0)
    queue.finish("ghost", 0.0)
    assert effects.take() == []


def test_waiting_too_long_is_refused_by_tick_and_the_rest_moves_up() -> None:
    queue, effects = make(timeout_s=10.0)
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 1.0)
    queue.submit(job("c"), 5.0)
    effects.take()
    queue.tick(10.9)
    assert effects.take() == []
    queue.tick(11.0)
    assert effects.take() == [("refuse", "b"), ("moved", "c", 1)]
    assert isinstance(effects.errors["b"], QueueTimeout)


def test_a_batch_lane_may_wait_for_ever() -> None:
    recorder = Recorder()
    limits = {lane: LaneLimit(5, None if lane == "batch" else 10.0) for lane in LANES}
    queue = Queue(recorder, limits)
    queue.submit(job("a", "batch"), 0.0)
    queue.tick(1e6)
    assert recorder.errors == {}


def test_eta_counts_the_rest_of_the_running_job_and_everyone_before() -> None:
    queue, _ = make(waiting=5)
    queue.rates = Rates(prompt_s=0.01, predict_s=0.1, typical_n=50)
    queue.submit(job("a", n_prompt=100, n_predict=20), 0.0)
    queue.submit(job("b", n_prompt=200, n_predict=1000), 0.0)
    queue.submit(job("c"), 0.0)
    queue.progress("a", n_prompt_done=100, n_generated=10)
    assert queue.eta_s("b", 0.0) == pytest.approx(10 * 0.1)
    assert queue.eta_s("c", 0.0) == pytest.approx(10 * 0.1 + 200 * 0.01 + 50 * 0.1)


def test_eta_with_two_slots_takes_the_one_that_is_free_first() -> None:
    queue, _ = make(slots=2)
    queue.rates = Rates(prompt_s=0.0, predict_s=1.0, typical_n=100)
    queue.submit(job("long", n_predict=90), 0.0)
    queue.submit(job("short", n_predict=10), 0.0)
    queue.submit(job("x", n_predict=20), 0.0)
    queue.submit(job("y"), 0.0)
    assert queue.eta_s("x", 0.0) == 10
    assert queue.eta_s("y", 0.0) == 30


def test_without_a_measurement_there_is_no_eta_but_a_position() -> None:
    queue, effects = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 0.0)
    assert queue.eta_s("b", 0.0) is None
    assert effects.take()[-1] == ("moved", "b", 1)


def test_a_deadline_that_cannot_be_met_is_refused_now() -> None:
    queue, effects = make()
    queue.rates = Rates(prompt_s=0.0, predict_s=1.0, typical_n=100)
    queue.submit(job("a"), 0.0)
    queue.submit(job("b", deadline_s=60.0), 0.0)
    error = effects.errors["b"]
    assert isinstance(error, DeadlineUnreachable)
    assert (error.status, error.extra["retry_after_s"]) == (429, 40)
    queue.submit(job("c", deadline_s=200.0), 0.0)
    assert "c" not in effects.errors


def test_a_deadline_also_ends_waiting() -> None:
    queue, effects = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("b", deadline_s=3.0), 0.0)
    queue.tick(3.0)
    assert isinstance(effects.errors["b"], QueueTimeout)
    assert "3 s" in effects.errors["b"].message


def test_a_worker_that_dies_lets_the_line_stand() -> None:
    queue, effects = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 0.0)
    effects.take()
    queue.pause(1.0)
    queue.finish("a", 1.0)
    assert effects.take() == []
    queue.open(1, 5.0)
    assert effects.take() == [("start", "b")]


def test_a_hold_starts_nothing_new_but_the_further_choices_of_an_answer_that_has_begun() -> None:
    queue, effects = make(slots=1, waiting=2)
    queue.submit(job("a"), 1.0)
    queue.hold(2.0)
    queue.submit(job("b"), 2.0)
    queue.submit(job("a-2", continues=True), 2.0)
    effects.take()
    queue.finish("a", 3.0)
    assert effects.take() == [("start", "a-2")]
    queue.finish("a-2", 4.0)
    assert effects.take() == []
    queue.submit(job("c"), 5.0)
    queue.submit(job("d"), 5.0)
    assert isinstance(effects.errors["d"], QueueFull) and queue.n_refused == 1
    effects.take()
    queue.release(6.0)
    assert effects.take() == [("start", "b"), ("moved", "c", 1)]


def test_a_worker_that_comes_and_goes_during_a_hold_starts_nobody() -> None:
    queue, effects = make(slots=1)
    queue.hold(1.0, reopens_s=9.0)
    queue.submit(job("a"), 1.0)
    assert queue.eta_s("a", 1.0) == 9.0
    effects.take()
    queue.pause(2.0)
    queue.open(2, 3.0)
    assert ("start", "a") not in effects.take() and queue.eta_s("a", 4.0) == 6.0
    queue.release(5.0)
    assert effects.take() == [("start", "a")]


def test_when_nobody_serves_for_now_new_ones_are_refused_and_the_queue_is_kept() -> None:
    queue, effects = make(slots=0)
    queue.hold(0.0)
    queue.submit(job("a"), 0.0)
    queue.shut(EngineDown("no profile could be started"), 1.0)
    queue.submit(job("b"), 2.0)
    assert isinstance(effects.errors["b"], EngineDown) and [j.id for j in queue.waiting()] == ["a"]
    effects.take()
    queue.hold(3.0)
    queue.pause(3.0)
    queue.open(1, 4.0)
    queue.release(5.0)
    assert effects.take() == [("start", "a")]


def test_a_waiting_job_can_turn_out_larger_and_a_started_one_cannot() -> None:
    queue, _ = make()
    queue.submit(job("a"), 0.0)
    queue.submit(job("b"), 0.0)
    assert queue.resize("b", 5000, 7) and queue.waiting()[0].n_prompt == 5000
    assert not queue.resize("a", 1, 1) and not queue.resize("nobody", 1, 1)


def test_while_people_are_about_rows_of_batches_leave_one_slot_free() -> None:
    queue, effects = make(slots=3, waiting=5)
    queue.submit(job("p", "interactive"), 0.0)
    queue.finish("p", 1.0)
    for name in ("b1", "b2", "b3"):
        queue.submit(job(name, "batch"), 2.0)
    assert effects.take() == [("start", "p"), ("start", "b1"), ("start", "b2"), ("moved", "b3", 1)]
    queue.submit(job("f", "fallback"), 3.0)
    assert effects.take() == [("start", "f")]
    queue.finish("b1", 4.0)
    assert effects.take() == [("start", "b3")]


def test_once_people_have_gone_a_batch_has_every_slot_and_the_next_person_the_first_that_is_free() -> None:
    queue, effects = make(slots=2, waiting=5)
    queue.submit(job("p"), 0.0)
    queue.finish("p", 1.0)
    queue.submit(job("b1", "batch"), 2.0)
    queue.submit(job("b2", "batch"), 2.0)
    queue.tick(1.0 + PEOPLE_S - 0.1)
    assert ("start", "b2") not in effects.take()
    queue.tick(1.0 + PEOPLE_S)
    assert ("start", "b2") in effects.take()
    queue.submit(job("b3", "batch"), 70.0)
    queue.submit(job("p2"), 70.0)
    effects.take()
    queue.finish("b1", 71.0)
    assert effects.take()[0] == ("start", "p2")


def test_a_person_who_is_being_answered_keeps_the_free_slot_for_as_long_as_it_takes() -> None:
    queue, effects = make(slots=3, waiting=5)
    queue.submit(job("p"), 0.0)
    for name in ("b1", "b2", "b3"):
        queue.submit(job(name, "batch"), 1.0)
    queue.finish("b1", 1000.0)
    assert [event for event in effects.take() if event[0] == "start"] == [
        ("start", "p"), ("start", "b1"), ("start", "b2"), ("start", "b3"),
    ]  # fmt: skip
    assert [active.id for active in queue.active()] == ["p", "b2", "b3"]


def test_the_only_slot_is_everybodys() -> None:
    queue, effects = make(slots=1)
    queue.submit(job("p"), 0.0)
    queue.finish("p", 1.0)
    queue.submit(job("b", "batch"), 1.0)
    assert effects.take() == [("start", "p"), ("start", "b")]


def test_the_eta_of_a_row_does_not_count_on_the_slot_that_is_kept() -> None:
    queue, _ = make(slots=2, waiting=5)
    queue.rates = Rates(prompt_s=0.1, predict_s=0.1, typical_n=100)
    queue.submit(job("p"), 0.0)
    queue.finish("p", 1.0)
    queue.submit(job("b1", "batch", n_predict=10), 1.0)
    queue.submit(job("b2", "batch", n_predict=10), 1.0)
    assert queue.eta_s("b2", 1.0) == pytest.approx(11.0)
