"""An answer that loops is ended and told, and hints say what may help. Not here: when a loop is one."""

from appliance.hints import hints
from appliance.request import Done
from engine.loops import LEAST_TOKENS
from engine.sampling import Sampling
from tests.appliance.scripted import request
from tests.appliance.test_worker import Script, run, text


def test_an_answer_that_loops_ends_with_length_and_says_so() -> None:
    frames = run(Script(text="hello " + "ab" * 400 + "."), request())
    done = frames[-1]
    assert (done["type"], done["finish_reason"]) == ("done", "length")
    assert done["loop"] == {"period_tokens": 2, "repeats": LEAST_TOKENS // 2 + 1}
    assert done["n_generated"] == len(text(frames)) == 6 + 2 + LEAST_TOKENS


def test_who_wants_no_end_gets_all_tokens_and_a_short_repetition_is_left_alone() -> None:
    frames = run(Script(text="ab" * 400 + "."), request(ignore_eos=True, max_tokens=600))
    assert frames[-1]["n_generated"] == 600 and frames[-1]["loop"] is None
    frames = run(Script(text="ab" * 100 + "."), request())
    assert (frames[-1]["finish_reason"], frames[-1]["loop"]) == ("stop", None)


def test_hints_name_what_was_seen_and_what_to_do() -> None:
    loop = {"period_tokens": 2, "repeats": 100}
    looped = Done("length", None, 5, 0, 300, {}, 1, loop=loop)
    cut, good = Done("length", None, 5, 0, 300, {}, 1), Done("stop", None, 5, 0, 900, {}, 1)
    cold, penal = Sampling(temperature=0.0), Sampling(temperature=0.0, repeat_penalty=1.1)
    four, two = {"n_params": 1000, "file_bytes": 560}, {"n_params": 1000, "file_bytes": 320}
    assert ["repeat_penalty to 1.1" in h for h in hints(cold, looped, four)] == [True]
    assert ["repeat_penalty to 1.1" in h for h in hints(cold, cut, four)] == [True]
    assert hints(cold, good, two) == hints(penal, cut, four) == hints(Sampling(), cut, four) == []
    assert "2.6 bits per weight" in hints(penal, cut, two)[0] and len(hints(cold, looped, two)) == 2
    assert hints(Sampling(temperature=0.0, grammar="x"), looped, {}) == []
    short = Done("length", None, 5, 0, 20, {}, 1)
    assert hints(cold, short, two) == []
