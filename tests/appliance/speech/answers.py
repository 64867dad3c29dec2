"""Reads an answer in every way it may be cut into pieces. Not here: tests."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from appliance.speech.events import BadCall, Began, Said, Thought, Wrote
from appliance.speech.speech import Speech
from appliance.speech.toolset import reader_of

TOOLS: dict[str, dict[str, str]] = {
    "get_weather": {"city": "string", "days": "integer", "exact": "boolean", "where": "object"},
    "now": {},
}


def read(speech: Speech, pieces: Sequence[str], was_cut: bool = False) -> dict[str, Any]:
    """`thoughts`, `said`, and `calls` as (name, arguments); or `wrong`, the words of a BadCall."""
    reader = reader_of(speech)
    found: dict[str, Any] = {"thoughts": "", "said": "", "calls": []}
    try:
        for event in [e for piece in pieces for e in reader.feed(piece)] + reader.finish(was_cut):
            if isinstance(event, Thought):
                found["thoughts"] += event.text
            elif isinstance(event, Said):
                found["said"] += event.text
            elif isinstance(event, Began):
                assert event.number == len(found["calls"])
                found["calls"].append((event.name, ""))
            elif isinstance(event, Wrote):
                name, arguments = found["calls"][event.number]
                assert event.number == len(found["calls"]) - 1
                found["calls"][event.number] = (name, arguments + event.text)
    except BadCall as error:
        return {"wrong": error.message}
    return found


def read_in_every_way(speech: Speech, text: str, was_cut: bool = False) -> dict[str, Any]:
    """What is read from the whole answer, after checking that it is the same however the answer is cut."""
    whole = read(speech, [text], was_cut)
    assert read(speech, list(text), was_cut) == whole, "letter by letter"
    assert read(speech, [*text, ""], was_cut) == whole
    for size in (2, 3, 5, 16):
        for first in range(size):
            cuts = [0, *range(first or size, len(text), size), len(text)]
            assert read(speech, [text[a:b] for a, b in pairwise(cuts)], was_cut) == whole, (size, first)
    return whole
