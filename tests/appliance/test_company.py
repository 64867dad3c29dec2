"""Sessions that step together: they join and leave, one ends alone, a cancel is for whom it is meant.

On a scripted engine; the real one, with the bits of every answer, is in test_real_worker.py.
"""

import threading
from typing import Any

import pytest

from appliance.company import Company
from appliance.frames import read_error
from appliance.session import Session
from engine.errors import Busy, ColibriError, EngineFailed, ModelFileChanged
from tests.appliance.scripted import Engine, Script, StepOut, request, vocab


class Guests:
    """A company of three on a script, and all frames by request."""

    def __init__(self, script: Script) -> None:
        script.n_parallel = 3
        self.engine = Engine(script)
        self.company = Company(self.engine)
        self.frames: dict[str, list[dict[str, Any]]] = {}

    def join(self, name: str, **more: Any) -> Session:
        frames = self.frames.setdefault(name, [])
        session = Session(request(name, **more), vocab(), frames.append)
        self.company.join(session)
        return session

    def fail_once(self, error: Exception) -> None:
        """The next step raises."""
        real, errors = self.engine.step_many, [error]

        def step(sequences: list[Any]) -> list[Any]:
            if errors:
                raise errors.pop()
            return real(sequences)

        self.engine.step_many = step  # type: ignore[method-assign]

    def end(self, name: str) -> str:
        return str(self.frames[name][-1]["type"])

    def text(self, name: str) -> str:
        return "".join(frame["text"] for frame in self.frames[name] if frame["type"] == "piece")

    def to_the_end(self) -> None:
        while self.company.sessions:
            self.company.step()
        self.engine.shutdown()


def test_who_comes_later_joins_the_steps_of_who_is_there() -> None:
    guests = Guests(Script(text="abcdef."))
    guests.join("early")
    for _ in range(3):
        guests.company.step()
    guests.join("late", max_tokens=2)
    guests.join("later", prompt="abab")
    guests.to_the_end()
    assert guests.engine.widths == [1, 1, 1, 3, 3, 3, 2, 2, 1, 1, 1]
    assert [guests.text(name) for name in ("early", "late", "later")] == ["abcdef", "ab", "abcdef"]


def test_one_is_cancelled_and_the_others_lose_nothing() -> None:
    guests = Guests(Script(text="abcdef."))
    names = ("a", "b", "c")
    sessions = {name: guests.join(name) for name in names}
    for _ in range(3):
        guests.company.step()
    sessions["b"].cancelled.set()
    guests.company.interrupt()
    guests.to_the_end()
    assert [guests.end(name) for name in names] == ["done", "cancelled", "done"]
    assert guests.frames["b"][-1]["n_generated"] == 2 and guests.text("b") == "ab"
    assert guests.text("a") == guests.text("c") == "abcdef"


def test_a_running_step_is_left_when_nobody_wants_it_any_more() -> None:
    guests = Guests(Script(chunk_s=30))
    sessions = [guests.join(name) for name in ("a", "b")]
    thread = threading.Thread(target=guests.to_the_end)
    thread.start()
    sessions[0].cancelled.set()
    guests.company.interrupt()  # one is still wanted
    assert len(guests.company.sessions) == 2
    sessions[1].cancelled.set()
    while thread.is_alive():
        guests.company.interrupt()
        thread.join(0.02)
    assert guests.end("a") == guests.end("b") == "cancelled"


def test_a_cancel_that_strikes_the_wrong_step_costs_that_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps one that came too late for the next step."""
    guests = Guests(Script(text="abc."))
    guests.join("a")
    real, late = guests.engine.step_many, [False, True, False]

    def step(sequences: list[Any]) -> list[Any]:
        if late and late.pop(0):
            return [StepOut("decode", 0, 0, cancelled=True) for _ in sequences]
        return real(sequences)

    monkeypatch.setattr(guests.engine, "step_many", step)
    guests.to_the_end()
    assert (guests.end("a"), guests.text("a")) == ("done", "abc")


@pytest.mark.parametrize(
    ("error", "ended"),
    [(EngineFailed("it failed"), "abc"), (Busy("no page is left"), "c"), (ModelFileChanged("another file"), "abc")],
)
def test_an_error_ends_those_whom_it_is_about(error: ColibriError, ended: str) -> None:
    guests = Guests(Script(text="abcdef."))
    for name in "abc":
        guests.join(name)
    guests.company.step()
    guests.fail_once(error)
    if isinstance(error, ModelFileChanged):
        with pytest.raises(ModelFileChanged):
            guests.company.step()
    guests.to_the_end()
    assert [guests.end(name) for name in "abc"] == ["error" if name in ended else "done" for name in "abc"]
    assert read_error(guests.frames["c"][-1]["error"]).message == error.message


def test_a_sequence_whose_numbers_are_none_ends_alone() -> None:
    guests = Guests(Script(text="abc."))
    sessions = [guests.join(name) for name in "abc"]
    broken = EngineFailed("no number")
    broken.sequences = [sessions[1].sequence]  # type: ignore[attr-defined]
    guests.fail_once(broken)
    guests.to_the_end()
    assert [guests.end(name) for name in "abc"] == ["done", "error", "done"]


def test_what_is_wrong_with_a_request_ends_it_before_it_joins() -> None:
    guests = Guests(Script(n_ctx=3))
    guests.join("long", prompt="abcd")
    guests.join("none", max_tokens=0)
    assert guests.company.sessions == []
    assert (guests.end("long"), guests.end("none")) == ("error", "done")
    guests.engine.shutdown()
