"""A real service is killed twice in the middle of a batch, and the batch is none the worse. Not here: 2,000 rows."""

from pathlib import Path

from benchmarks.batch_kills import look
from tests.tiny import tiny_llama


def test_sixty_rows_survive_two_kills_of_every_process_with_the_bytes_of_an_undisturbed_run(tmp_path: Path) -> None:
    seen = look(tmp_path, tiny_llama(tmp_path / "tiny.gguf"), 60, 2, 7, "--parallel", "4", "--threads", "1")
    assert seen.wrong == [] and len(seen.lost) == 2
