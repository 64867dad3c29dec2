"""Metrics: what one answer adds, by the names that dashboards know."""

from appliance.metrics import Live, Metrics, process_memory
from appliance.request import Done, Piece, Prefill, Queued

TIMINGS = {
    "cache_n": 0, "prompt_n": 10, "prompt_ms": 500.0, "prompt_per_second": 20.0, "predicted_n": 4,
    "predicted_ms": 2000.0, "predicted_per_second": 2.0, "queue_ms": 250.0, "draft_n": 5, "draft_n_accepted": 2,
}  # fmt: skip


def series(metrics: Metrics) -> dict[str, float]:
    lines = metrics.page().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_one_answer_fills_all_three_groups() -> None:
    now = [100.0]
    metrics = Metrics("m", clock=lambda: now[0])
    watch = metrics.watch()
    for seconds, event in (
        (0.25, Queued(1, None)),
        (0.25, Prefill(0, 10, 0, 0.0)),
        (0.5, Piece("a", [1])),
        (1.0, Piece("bc", [2, 3])),
        (1.0, Piece("", [])),
        (0.0, Done("stop", None, 10, 0, 4, TIMINGS, 7)),
    ):
        now[0] += seconds
        watch.see(event)
    found = series(metrics)
    assert found["llamacpp:prompt_tokens_total"] == 10
    assert found["llamacpp:prompt_seconds_total"] == 0.5
    assert found["llamacpp:tokens_predicted_total"] == 4
    assert found["llamacpp:predicted_tokens_seconds"] == 2.0
    assert found["llamacpp:n_tokens_max"] == 14
    assert found['colibri_spec_decode_num_draft_tokens_total{model_name="m"}'] == 5
    assert found['colibri_spec_decode_num_accepted_tokens_total{model_name="m"}'] == 2
    assert found['colibri_prefix_cache_queries_total{model_name="m"}'] == 10
    assert found['colibri_prefix_cache_hits_total{model_name="m"}'] == 0
    assert found['colibri_request_success_total{finished_reason="stop",model_name="m"}'] == 1
    assert found['colibri_time_to_first_token_seconds_sum{model_name="m"}'] == 1.0
    assert found['colibri_inter_token_latency_seconds_count{model_name="m"}'] == 2
    assert found['colibri_inter_token_latency_seconds_sum{model_name="m"}'] == 1.0
    assert found['colibri_e2e_request_latency_seconds_sum{model_name="m"}'] == 3.0
    assert found['colibri_request_queue_time_seconds_sum{model_name="m"}'] == 0.25
    assert metrics.counts == {"finished": 1, "failed": 0, "cancelled": 0, "refused": 0}


def test_buckets_reach_from_a_tenth_of_a_second_to_an_hour() -> None:
    metrics = Metrics("m")
    metrics.first_piece(1800.0)
    found = series(metrics)
    assert found['colibri_time_to_first_token_seconds_bucket{le="0.1",model_name="m"}'] == 0
    assert found['colibri_time_to_first_token_seconds_bucket{le="1200.0",model_name="m"}'] == 0
    assert found['colibri_time_to_first_token_seconds_bucket{le="3600.0",model_name="m"}'] == 1


def test_refused_failed_and_cancelled_are_told_apart() -> None:
    metrics = Metrics("m")
    metrics.refused("queue_full")
    metrics.failed("engine_failed")
    metrics.cancelled("prefill")
    found = series(metrics)
    assert found['colibri_rejected_total{reason="queue_full"}'] == 1
    assert found['colibri_failed_total{code="engine_failed"}'] == 1
    assert found['colibri_cancelled_total{phase="prefill"}'] == 1


def test_live_figures_are_asked_at_each_scrape() -> None:
    metrics = Metrics("m")
    depth = [1]
    metrics.ask(
        lambda: [Live("colibri_depth", "h", {(("lane", 'a"b\n'),): depth[0]}), Live("c_total", "h", {(): 2}, "counter")]
    )
    assert series(metrics)['colibri_depth{lane="a\\"b\\n"}'] == 1
    depth[0] = 5
    assert series(metrics)['colibri_depth{lane="a\\"b\\n"}'] == 5
    assert series(metrics)["c_total"] == 2


def test_percentiles_of_the_first_token() -> None:
    metrics = Metrics("m")
    assert metrics.percentiles() == {"p50_ms": None, "p95_ms": None}
    for i in range(1, 101):
        metrics.first_piece(i / 100)
    assert metrics.percentiles() == {"p50_ms": 505.0, "p95_ms": 950.5}


def test_process_memory_knows_itself_and_nobody_else() -> None:
    facts = process_memory()
    assert 1 << 20 < facts["anon_bytes"] <= facts["rss_bytes"]
    assert facts["major_faults"] >= 0
    assert process_memory(1 << 30) == {}


def test_a_swap_is_counted_and_timed_by_its_end() -> None:
    metrics = Metrics("m")
    metrics.switched("ready", 12.0)
    metrics.switched("ready", 700.0)
    metrics.switched("rolled_back", 3.0)
    found = series(metrics)
    assert found['colibri_profile_switches_total{state="ready"}'] == 2
    assert found['colibri_profile_switch_seconds_bucket{le="30.0",result="ready"}'] == 1
    assert found['colibri_profile_switch_seconds_sum{result="ready"}'] == 712.0
    assert found['colibri_profile_switches_total{state="rolled_back"}'] == 1


def test_a_hand_over_is_counted_by_its_reason() -> None:
    metrics = Metrics("m")
    metrics.handed_over("queue_full")
    assert series(metrics)['colibri_handoffs_total{reason="queue_full"}'] == 1


def test_another_model_has_its_own_series() -> None:
    metrics = Metrics("one")
    metrics.first_piece(1.0)
    metrics.serves("two")
    metrics.first_piece(2.0)
    found = series(metrics)
    assert found['colibri_time_to_first_token_seconds_sum{model_name="one"}'] == 1.0
    assert found['colibri_time_to_first_token_seconds_sum{model_name="two"}'] == 2.0


def test_generated_tokens_set_the_pace() -> None:
    now = [100.0]
    metrics = Metrics("m", clock=lambda: now[0])
    watch = metrics.watch()
    for n in (1, 2, 3):
        watch.see(Piece("x", list(range(n))))
        now[0] += 1.0
    assert metrics.pace.history(now[0])[-4:] == [0, 1, 2, 3]
