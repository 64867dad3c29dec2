"""Twelve openai clients crowd a real service that answers one at a time. Not here: ten minutes, speed, memory."""

from pathlib import Path

from benchmarks.crowd import Seen, look
from tests.tiny import tiny_llama


def test_everybody_is_answered_or_told_when_to_come_again_and_nothing_is_computed_twice(tmp_path: Path) -> None:
    seen = look(tmp_path / "data", tiny_llama(tmp_path / "tiny.gguf"), 0.05, 12, 3)
    assert seen.wrong == []
    assert seen.counts["HTTP 200"] and seen.counts["HTTP 429"]
    assert seen.memory[-1][1] > 50
    assert seen.finished >= seen.counts["answered in lane interactive"] >= 1


def test_growth_is_counted_from_where_memory_has_settled() -> None:
    seen = Seen(memory=[(float(s), 500.0 if s < 100 else 600.0 + s / 100) for s in range(601)])
    assert 4.0 < seen.growth_mb() < 5.0
