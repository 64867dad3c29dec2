"""One request inside the worker: text, stops, logprobs, credit; in-process sessions on a scripted engine."""

import itertools
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance import worker
from appliance.company import Company
from appliance.easing import LEAST, Easing
from appliance.frames import read_done, read_error, read_piece
from appliance.machine.pressure import Pressure
from appliance.outbox import MERGED_TOKENS, WINDOW, Outbox, SlowReader
from appliance.request import Done, GenerateRequest
from appliance.session import Session
from appliance.wire import Line
from engine.errors import ContextLengthExceeded
from tests.appliance.scripted import END, Engine, Script, ids, request, vocab
from tests.tiny_moe import tiny_qwen3moe


def run(
    script: Script, asked: GenerateRequest | None = None, meanwhile: Callable[[Session], None] | None = None
) -> Any:
    """All frames of one request."""
    frames: list[dict[str, Any]] = []
    engine = Engine(script)
    session = Session(asked or request(), vocab(), frames.append)
    if meanwhile is not None:
        threading.Thread(target=meanwhile, args=(session,), daemon=True).start()
    finish(engine, session)
    engine.shutdown()
    return frames


def finish(engine: Engine, *sessions: Session) -> None:
    """Step them all to their ends, as the engine thread does."""
    company = Company(engine)
    for session in sessions:
        company.join(session)
    to_the_end(company)


def to_the_end(company: Company) -> None:
    while company.sessions:
        company.step()


def text(frames: list[dict[str, Any]]) -> str:
    return "".join(f["text"] for f in frames if f["type"] == "piece")


def all_ids(frames: list[dict[str, Any]]) -> list[int]:
    return [i for f in frames if f["type"] == "piece" for i in f["ids"]]


def done(frames: list[dict[str, Any]]) -> Done:
    assert frames[-1]["type"] == "done", frames[-1]
    return read_done(frames[-1], queue_ms=0.0)


def test_an_answer_ends_at_its_end_token_which_is_counted_but_not_shown() -> None:
    frames = run(Script(text="hello."))
    assert (text(frames), all_ids(frames)) == ("hello", ids("hello"))
    end = done(frames)
    assert (end.finish_reason, end.stop_string, end.n_prompt, end.n_generated, end.seed) == ("stop", None, 2, 6, 7)


def test_the_limit_ends_it_and_says_so() -> None:
    frames = run(Script(text="hello."), request(max_tokens=3))
    assert text(frames) == "hel"
    assert (done(frames).finish_reason, done(frames).n_generated) == ("length", 3)


def test_no_limit_means_until_the_context_is_full() -> None:
    frames = run(Script(text="a", n_ctx=50))
    assert (done(frames).finish_reason, done(frames).n_generated) == ("length", 48)


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    frames = run(Script(n_ctx=4), request(prompt="abcd"))
    error = read_error(frames[-1]["error"])
    assert isinstance(error, ContextLengthExceeded)
    assert error.extra == {"n_prompt_tokens": 4, "n_ctx": 4}


def test_zero_tokens_cost_no_step() -> None:
    frames = run(Script(kill_at=1), request(max_tokens=0))
    assert (done(frames).finish_reason, done(frames).n_generated) == ("length", 0)


def test_ignoring_the_end_goes_on_over_it_without_showing_it() -> None:
    frames = run(Script(text="ab."), request(max_tokens=7, ignore_eos=True))
    assert text(frames) == "ababa"
    assert all_ids(frames).count(END) == 2


def test_special_tokens_show_only_when_asked() -> None:
    assert text(run(Script(text="a-b."))) == "ab"
    assert text(run(Script(text="a-b."), request(skip_special=False))) == "a<|mark|>b"


def test_a_stop_string_and_what_follows_never_leave_the_worker() -> None:
    frames = run(Script(text="abcdexyz."), request(stop=("dex", "zz"), n_logprobs=1))
    assert (text(frames), all_ids(frames)) == ("abc", ids("abc"))
    assert [lp.text for f in frames if f["type"] == "piece" for lp in read_piece(f).logprobs] == [b"a", b"b", b"c"]
    assert (done(frames).finish_reason, done(frames).stop_string) == ("stop", "dex")


def test_text_held_for_a_stop_that_never_came_is_let_go_at_the_end() -> None:
    frames = run(Script(text="abcde."), request(stop=("dex",)))
    assert (text(frames), all_ids(frames)) == ("abcde", ids("abcde"))


def test_logprobs_have_bytes_rivals_and_no_infinity() -> None:
    frames = run(Script(text="a."), request(n_logprobs=2))
    (entry,) = next(read_piece(f).logprobs for f in frames if f["type"] == "piece")
    assert (entry.id, entry.text, entry.logprob) == (0, b"a", -0.5)
    assert [(t.id, t.logprob) for t in entry.top] == [(0, -0.5), (0, -9999.0)]


def test_prefill_is_told_from_its_first_to_its_last_token() -> None:
    frames = run(Script(chunk=4, chunk_s=0.01), request(prompt="a" * 30))
    told = [(f["done"], f["total"]) for f in frames if f["type"] == "prefill"]
    assert (told[0], told[-1]) == ((0, 30), (30, 30))
    assert told == sorted(told)


def test_timings_have_the_names_of_llama_server() -> None:
    timings = done(run(Script(text="abc.", step_s=0.01, chunk_s=0.01), request(prompt="a" * 20))).timings
    assert set(timings) == {
        *("cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "queue_ms"),
        *("predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"),
    }
    assert (timings["prompt_n"], timings["predicted_n"], timings["cache_n"]) == (20, 4, 0)
    assert timings["prompt_ms"] >= 20
    assert timings["predicted_ms"] >= 30
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 4)


def test_one_token_divides_by_nothing() -> None:
    assert done(run(Script(text="a."), request(max_tokens=1))).timings["predicted_per_second"] >= 0


@pytest.mark.parametrize(("phase", "script"), [("prefill", Script(chunk_s=30)), ("decode", Script(step_s=30))])
def test_cancel_ends_a_step_within_a_layer(phase: str, script: Script) -> None:
    frames: list[dict[str, Any]] = []
    engine = Engine(script)
    session = Session(request(), vocab(), frames.append)
    company = Company(engine)
    company.join(session)
    thread = threading.Thread(target=to_the_end, args=(company,))
    thread.start()
    if phase == "decode":
        while engine.n_steps < 2:
            time.sleep(0.001)
    session.cancelled.set()
    while thread.is_alive():  # as the worker's main thread does
        company.interrupt()
        thread.join(0.02)
    assert frames[-1]["type"] == "cancelled"
    engine.shutdown()


def test_a_late_cancel_does_not_hit_the_next_one() -> None:
    """The main thread may still be busy with the cancel of a session that has just ended."""
    frames: list[dict[str, Any]] = []
    engine = Engine(Script(text="abc.", step_s=0.01))
    company, first = Company(engine), Session(request(), vocab(), frames.append)
    company.join(first)
    to_the_end(company)
    first.cancelled.set()
    company.join(Session(request("r2"), vocab(), frames.append))
    second = threading.Thread(target=to_the_end, args=(company,))
    second.start()
    while second.is_alive():
        company.interrupt()
    assert text(frames) == "abcabc"
    assert frames[-1]["type"] == "done"


def test_an_error_of_the_request_is_told_and_the_engine_goes_on() -> None:
    engine = Engine(Script(text="abc.", fail_at=3))
    frames: list[dict[str, Any]] = []
    finish(engine, Session(request(), vocab(), frames.append))
    assert "not a number" in read_error(frames[-1]["error"]).message
    finish(engine, Session(request(), vocab(), frames.append))
    assert frames[-1]["type"] == "done"
    engine.shutdown()


def test_any_other_exception_passes_and_nothing_pretends_to_be_an_end() -> None:
    frames: list[dict[str, Any]] = []
    with pytest.raises(RuntimeError):
        finish(Engine(Script(raise_at=3)), Session(request(), vocab(), frames.append))
    assert {f["type"] for f in frames} == {"prefill", "piece"}


def test_an_unread_answer_stops_at_the_window_and_comes_merged() -> None:
    sent: list[dict[str, Any]] = []
    box = Outbox(sent.append, "r")
    for n in range(1000):
        box.push("x", [n], [])
    assert len(sent) == WINDOW
    box.ack(2)
    assert [len(f["ids"]) for f in sent[WINDOW:]] == [MERGED_TOKENS] * 2
    box.flush()
    assert [i for f in sent for i in f["ids"]] == list(range(1000))
    assert text(sent) == "x" * 1000
    assert len(sent) == WINDOW + 4


def test_a_reader_who_keeps_up_sees_every_piece_by_itself() -> None:
    sent: list[dict[str, Any]] = []
    box = Outbox(sent.append, "r")
    for n in range(1000):
        box.push("x", [n], [])
        box.ack(1)
    assert all(len(f["ids"]) == 1 for f in sent)


def test_what_is_held_for_a_reader_is_bounded() -> None:
    box = Outbox(lambda frame: None, "r")
    with pytest.raises(SlowReader):
        for _ in range(1000):
            box.push("x" * (1 << 20), [1], [])


def test_memory_is_given_back_while_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real engine with a cache of experts, no request, and a kernel that says memory is short; minutes pass fast."""
    monkeypatch.setattr(worker, "AGAIN_S", 0.001)
    monkeypatch.setattr(worker, "LOOK_S", 0.0)
    minutes = itertools.count(0, 60).__next__
    monkeypatch.setattr(worker, "Easing", partial(Easing, read=lambda: Pressure(memory_some=50.0), clock=minutes))
    options = {"n_ctx": 512, "ubatch_size": 8, "load_mode": "stream", "spec_type": "none", "expert_bytes": 1 << 30}
    ours, theirs = socket.socketpair()
    model = tiny_qwen3moe(tmp_path / "m.gguf", n_layers=8)
    thread = worker.EngineThread({"model": str(model), "options": options}, Line(ours))
    thread.start()
    until = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < until:
        cache: Any = thread.engine and thread.engine.experts  # type: ignore[attr-defined]
        if cache and cache.used_bytes <= 1.01 * LEAST * cache.n_bytes:
            break
        time.sleep(0.01)
    assert cache and cache.used_bytes <= 1.01 * LEAST * cache.n_bytes
    thread.inbox.put(None)
    thread.join()
    assert thread.failure is None
    ours.close()
    theirs.close()
