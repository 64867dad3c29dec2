"""The real engine in its real process, on a tiny model: text, cancellation, death, refusals."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from appliance.dispatch import Dispatcher
from appliance.life import WorkerSpec
from appliance.machine.host import read_machine
from appliance.request import Done, Event, GenerateRequest, Piece, Prefill
from appliance.supervisor import BackOff, Supervisor
from appliance.swaps.model_facts import identity
from appliance.worker import load
from engine.errors import BadModelFile, ColibriError, DoesNotFit, EngineFailed, UnsupportedModel
from engine.gguf.reader import read_gguf
from engine.kernels.isa import ISA
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.text import open_text
from tests.tiny import tiny_llama

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUARD_S = 120
N_CTX = 2048
OPTIONS: dict[str, Any] = {"n_ctx": N_CTX, "threads": 2, "threads_batch": 2, "batch_size": 64, "ubatch_size": 64}
PROMPT = [40, 90, 3, 250, 41, 41, 7]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", quant="Q8_0", n_layers=4, n_ctx=N_CTX)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(model: Path) -> AsyncIterator[tuple[Dispatcher, Supervisor]]:
    supervisor = Supervisor(WorkerSpec(str(model), OPTIONS), back_off=BackOff(first_s=0.05))
    dispatcher = Dispatcher(supervisor)
    await supervisor.start()
    async with asyncio.timeout(GUARD_S):
        await supervisor.ready()
    yield dispatcher, supervisor
    await supervisor.stop()
    await dispatcher.close()


Served = tuple[Dispatcher, Supervisor]


def ask(name: str, prompt: list[int] = PROMPT, n: int | None = 40, **more: Any) -> GenerateRequest:
    more.setdefault("sampling", Sampling(temperature=0.0))
    return GenerateRequest(id=name, prompt_ids=prompt, model="tiny", max_tokens=n, ignore_eos=True, **more)


async def answer(dispatcher: Dispatcher, request: GenerateRequest) -> list[Event]:
    async with asyncio.timeout(GUARD_S):
        return [event async for event in dispatcher.submit(request)]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Piece))


def ids(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Piece) for token in event.ids]


async def test_ids_and_text_are_the_engines_own(served: Served, model: Path) -> None:
    dispatcher, _ = served
    events = await answer(dispatcher, ask("own"))
    engine = load_engine(model, EngineOptions(**OPTIONS), read_machine())
    seq = engine.open(PROMPT, Sampling(temperature=0.0), 40)
    expected: list[int] = []
    while len(expected) < 40:
        token = engine.step(seq).token
        expected += [] if token is None else [token]
    engine.close(seq)
    engine.shutdown()
    assert ids(events) == expected
    assert text(events) == open_text(read_gguf(model)).decode(expected)
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.finish_reason, done.n_prompt, done.n_generated) == ("length", len(PROMPT), 40)


async def test_guessing_gives_the_same_events_and_counts_in_the_timings(served: Served, model: Path) -> None:
    asked = [ask(f"g{i}", [9, 8, 7] * 12, 60, n_logprobs=i) for i in range(2)]
    plain = [await answer(served[0], one) for one in asked]
    supervisor = Supervisor(WorkerSpec(str(model), {**OPTIONS, "spec_type": "ngram-simple"}))
    dispatcher = Dispatcher(supervisor)
    await supervisor.start()
    async with asyncio.timeout(GUARD_S):
        await supervisor.ready()
    guessed = [await answer(dispatcher, one) for one in asked]
    await supervisor.stop()
    await dispatcher.close()
    n_guessed = 0.0
    for want, got in zip(plain, guessed, strict=True):
        assert (ids(got), text(got)) == (ids(want), text(want))
        lps = [[lp for event in events if isinstance(event, Piece) for lp in event.logprobs] for events in (want, got)]
        assert lps[0] == lps[1]
        assert isinstance(got[-1], Done) and isinstance(want[-1], Done)
        assert got[-1].n_generated == want[-1].n_generated == 60 and "draft_n" not in want[-1].timings
        drafted = got[-1].timings.get("draft_n", 0)
        assert 0 <= got[-1].timings.get("draft_n_accepted", 0) <= drafted
        n_guessed += drafted
    assert n_guessed > 0


async def test_several_at_once_get_what_each_would_get_alone(served: Served, model: Path) -> None:
    """Twelve requests of all sorts through three places: they wait, join, leave, and one is cancelled in the middle."""
    rng = random.Random(1)
    prompts = [[rng.randrange(3, 300) for _ in range(n)] for n in (3, 200, 65, 64, 7, 130, 1, 30, 90, 12, 40, 5)]
    hot = Sampling(temperature=1.2, top_k=0, repeat_penalty=1.1, seed=5)
    asked = [
        ask(f"m{i}", prompt, 5 + 7 * (i % 4), n_logprobs=i % 3, sampling=hot if i % 2 else Sampling(temperature=0.0))
        for i, prompt in enumerate(prompts)
    ]
    alone = [await answer(served[0], one) for one in asked]
    supervisor = Supervisor(WorkerSpec(str(model), {**OPTIONS, "n_parallel": 3}))
    dispatcher = Dispatcher(supervisor, max_queue=20)
    await supervisor.start()
    async with asyncio.timeout(GUARD_S):
        await supervisor.ready()

    async def leave() -> None:
        async with asyncio.timeout(GUARD_S):
            async for event in (ticket := dispatcher.submit(ask("gone", [9] * 100, None))):
                if isinstance(event, Piece):
                    break
            ticket.cancel()

    async with asyncio.TaskGroup() as group:
        group.create_task(leave())
        tasks = [group.create_task(answer(dispatcher, one)) for one in asked]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, dispatcher.n_active())
            await asyncio.sleep(0.001)
    await supervisor.stop()
    await dispatcher.close()
    assert most == 3
    for want, task in zip(alone, tasks, strict=True):
        got = task.result()
        assert (ids(got), text(got)) == (ids(want), text(want))
        lps = [[lp for event in events if isinstance(event, Piece) for lp in event.logprobs] for events in (want, got)]
        assert lps[0] == lps[1]


async def test_the_facts_of_a_ready_worker(served: Served) -> None:
    _, supervisor = served
    info = supervisor.info
    for name in ("pid", "n_ctx", "type_k", "type_v", "threads", "isa", "load_mode", "model_digest", "rss_anon"):
        assert name in info
    assert (info["n_ctx"], info["n_vocab"]) == (N_CTX, 320)
    await asyncio.sleep(1.2)
    assert supervisor.info["beat"]["busy"] is False


async def test_a_seed_repeats_and_a_drawn_one_is_told(served: Served) -> None:
    dispatcher, _ = served
    drawn = await answer(dispatcher, ask("s1", sampling=Sampling(temperature=1.0)))
    assert isinstance(drawn[-1], Done)
    again = await answer(dispatcher, ask("s2", sampling=Sampling(temperature=1.0, seed=drawn[-1].seed)))
    assert ids(again) == ids(drawn)


async def test_logprobs_name_the_choice_first_when_greedy(served: Served) -> None:
    dispatcher, _ = served
    events = await answer(dispatcher, ask("lp", n=5, n_logprobs=3))
    entries = [entry for event in events if isinstance(event, Piece) for entry in event.logprobs]
    assert len(entries) == 5
    for entry in entries:
        assert len(entry.top) == 3
        assert (entry.top[0].id, entry.top[0].logprob) == (entry.id, entry.logprob)


async def test_a_stop_string_of_the_models_own_words(served: Served) -> None:
    dispatcher, _ = served
    whole = text(await answer(dispatcher, ask("w")))
    stop = whole[10:13]
    events = await answer(dispatcher, ask("st", stop=(stop,)))
    assert text(events) == whole[: whole.index(stop)]
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.finish_reason, done.stop_string) == ("stop", stop)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_leaving_frees_the_engine(served: Served, phase: str) -> None:
    dispatcher, _ = served
    expected = text(await answer(dispatcher, ask(f"before {phase}")))
    leaver = dispatcher.submit(ask(f"leaver {phase}", prompt=[7] * (N_CTX - 500), n=None))
    last = 0
    async with asyncio.timeout(GUARD_S):
        async for event in leaver:
            last = event.done if isinstance(event, Prefill) else last
            if isinstance(event, Prefill if phase == "prefill" else Piece):
                break
    leaver.cancel()
    assert phase == "decode" or last < N_CTX - 500
    assert text(await answer(dispatcher, ask(f"after {phase}"))) == expected
    assert dispatcher.snapshot()["running"] == []


async def test_bad_requests_end_themselves_only(served: Served) -> None:
    dispatcher, supervisor = served
    for n, prompt in enumerate(([], [10_000], [7] * N_CTX)):
        with pytest.raises(ColibriError) as refused:
            await answer(dispatcher, ask(f"bad {n}", prompt=prompt))
        assert refused.value.status == 400
    assert text(await answer(dispatcher, ask("good")))
    assert supervisor.restarts == 0


async def test_kill_9_in_a_stream_then_the_same_answer_again(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="colibri")
    dispatcher, supervisor = served
    expected = text(await answer(dispatcher, ask("k1")))
    victim = dispatcher.submit(ask("victim", n=None))
    with pytest.raises(EngineFailed, match="send the request again"):
        async for event in victim:
            if isinstance(event, Piece) and supervisor.restarts == 0:
                os.kill(supervisor.info["pid"], signal.SIGKILL)
                break
        async for _ in victim:
            pass
    assert text(await answer(dispatcher, ask("k2"))) == expected
    assert supervisor.restarts == 1
    assert f"engine: {ISA.words}" in caplog.messages, "each start of the engine says CPU, level and why"


async def refusal(path: Path, **options: Any) -> ColibriError:
    supervisor = Supervisor(WorkerSpec(str(path), {**OPTIONS, **options}))
    await supervisor.start()
    try:
        async with asyncio.timeout(GUARD_S):
            with pytest.raises(ColibriError) as refused:
                await supervisor.ready()
    finally:
        await supervisor.stop()
    assert supervisor.restarts == 0
    return refused.value


async def test_models_that_cannot_be_loaded_are_refused_in_the_workers_words(model: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.gguf"
    note.write_text("this is no model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-5000])
    alien = tiny_llama(tmp_path / "alien.gguf", **{"general.architecture": "alien"})
    for path, kind in ((note, BadModelFile), (cut, BadModelFile), (alien, UnsupportedModel)):
        error = await refusal(path)
        assert isinstance(error, kind), error
        assert error.exit_code == 3
        assert "Traceback" not in error.message


async def test_a_context_that_no_machine_holds_is_refused(model: Path) -> None:
    error = await refusal(model, n_ctx=1 << 30)
    assert isinstance(error, DoesNotFit), error
    assert error.exit_code == 4


@pytest.mark.parametrize("mode", ["stream", "mmap"])
async def test_a_model_file_that_changes_ends_the_answer_and_is_not_answered_from_again(
    tmp_path: Path, mode: str
) -> None:
    """One that is away for a moment fails the answers of that moment; one that is another has the engine go."""
    path = tiny_llama(tmp_path / "m.gguf", n_layers=3)
    spec = WorkerSpec(str(path), {**OPTIONS, "load_mode": mode}, identity=identity(path))
    supervisor = Supervisor(spec, back_off=BackOff(first_s=0.01))
    dispatcher = Dispatcher(supervisor)
    await supervisor.start()
    async with asyncio.timeout(GUARD_S):
        await supervisor.ready()
    expected = text(await answer(dispatcher, ask("c1")))
    path.rename(tmp_path / "away")
    with pytest.raises(EngineFailed, match="cannot be reached any more") as failed:
        await answer(dispatcher, ask("c2"))
    assert failed.value.code == "read_failed"
    (tmp_path / "away").rename(path)
    assert text(await answer(dispatcher, ask("c3"))) == expected and supervisor.restarts == 0
    os.utime(path, ns=(1, 1))
    with pytest.raises(EngineFailed, match="was written to while it was in use; load it again") as failed:
        await answer(dispatcher, ask("c4"))
    assert failed.value.code == "model_file_changed"
    async with asyncio.timeout(GUARD_S):
        while supervisor.state == "ready":
            await asyncio.sleep(0.01)
        with pytest.raises(BadModelFile, match="replaced by another file since it was planned"):
            await supervisor.ready()
    await supervisor.stop()
    await dispatcher.close()


async def test_a_disk_that_was_ill_for_a_moment_does_not_end_the_service(tmp_path: Path) -> None:
    """The worker dies, and its file cannot be read while it is started anew: a link to itself stands in its place."""
    path = tiny_llama(tmp_path / "m.gguf")
    supervisor = Supervisor(WorkerSpec(str(path), OPTIONS), back_off=BackOff(first_s=0.01, longest_s=0.05, ends=99))
    dispatcher = Dispatcher(supervisor)
    await supervisor.start()
    async with asyncio.timeout(GUARD_S):
        pid = (await supervisor.ready())["pid"]
        expected = text(await answer(dispatcher, ask("i1")))
        path.rename(tmp_path / "away")
        path.symlink_to(path)
        os.kill(pid, signal.SIGKILL)
        while supervisor.restarts < 2:
            await asyncio.sleep(0.01)
        path.unlink()
        (tmp_path / "away").rename(path)
        await supervisor.ready()
    assert text(await answer(dispatcher, ask("i2"))) == expected
    await supervisor.stop()
    await dispatcher.close()
    path.unlink()
    path.symlink_to(path)
    assert (await refusal(path)).code == "model_unreadable", "what never was there is told at once"


async def test_another_file_under_the_same_name_is_refused_even_with_the_same_header(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    planned = identity(path)
    other = bytearray(path.read_bytes())
    other[-1] ^= 1
    (tmp_path / "new").write_bytes(other)
    os.replace(tmp_path / "new", path)
    with pytest.raises(BadModelFile, match="replaced by another file"):
        load({"model": str(path), "options": OPTIONS, "identity": list(planned)}, lambda *_: None)
