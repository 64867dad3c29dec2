"""The tagging benchmark runs against our own server and counts what it should. Not here: peers, speed."""

from pathlib import Path

import pytest

from benchmarks import tagging
from benchmarks.tickets import LABELS, messages, text
from tests.tiny import tiny_llama


def answer(content: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": content}}]}


def test_texts_have_30_to_80_words_and_no_two_are_alike() -> None:
    texts = [text(n) for n in range(400)]
    assert len(set(texts)) == 400
    assert all(30 <= len(t.split()) <= 80 and "{" not in t for t in texts)
    assert messages(3) == messages(3)


def test_only_an_answer_of_the_schema_is_a_label() -> None:
    assert tagging.label(answer('{ "label": "refund" }')) == "refund"
    for wrong in ('{"label": "fish"}', '{"label": "refund"', '"refund"', '{"label": "refund", "why": 1}', ""):
        assert tagging.label(answer(wrong)) is None


def test_a_look_labels_every_row_in_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagging, "N_CTX", 4096)
    monkeypatch.setattr("benchmarks.llamacpp.binary", lambda name, given=None: None)
    model = tiny_llama(tmp_path / "tiny.gguf", n_ctx=4096)
    words = ["--rounds", "1", "--rows", "6", "--parallel", "2", "--threads", "1", "--patience", "0"]
    match = tagging.Match(model, tagging.parser().parse_args(words))
    match.play()
    found = match.result()
    scored, written = found["rows"]
    assert (scored["contender"], scored["made_ids"]) == ("scored", 0)
    assert written["contender"] == "written" and written["made_ids"] > 3
    whole = sum(len(m["content"]) for m in messages(0))
    for row in found["rows"]:
        assert row["without_label"] == 0
        assert 0 < row["new_ids"] < whole / 2, "the instruction is read once for all rows"
        assert row["rows_per_minute"] > 0
    assert all(set(turn.labels) <= set(LABELS) for turns in match.turns.values() for turn in turns)
    assert 0 <= found["agreement"] <= 1 and found["peer_agreement"] is None and found["of_reading"] > 0
    assert [bar.value for bar in tagging.bars("smollm2", found)] == [None, None, found["of_reading"]]
