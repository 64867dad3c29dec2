"""`colibri run` on a mapped file that somebody cuts in the middle of an answer. Not here: the handler alone."""

import os
from pathlib import Path

from tests.appliance.cli.shell import started
from tests.heavy import heavy_llama


def test_a_file_cut_in_the_middle_of_an_answer_ends_it_with_a_sentence(tmp_path: Path) -> None:
    model = heavy_llama(tmp_path / "heavy.gguf")
    words = ("-m", str(model), "--load-mode", "mmap", "-c", "2048", "-p", "bird", "--raw", "-n", "1900", "--temp", "1")
    running = started("run", *words, "--ignore-eos")
    assert running.stdout is not None and running.stdout.read(1)
    os.truncate(model, 4096)
    _, err = running.communicate(timeout=120)
    said = err.decode()
    assert running.returncode == 3 and "Traceback" not in said, said
    assert said.splitlines()[-1].startswith("colibri: error: the model") and "cut" in said
