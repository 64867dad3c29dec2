"""A mapped file that is cut while compiled code reads it: a real bus error in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from engine.kernels.cut import SENTENCE
from scripts.house import ROOT

READS = """
import mmap, os, sys
from engine.kernels.cut import end_plainly
end_plainly()
with open(sys.argv[1], "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0)
    os.truncate(sys.argv[1], 0)
    print(pages[5000])
"""


def test_the_process_ends_with_one_sentence_and_the_exit_code_of_a_bad_file(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(bytes(8192))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", READS, path], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", SENTENCE)
    assert SENTENCE.count(b"\n") == 1 and SENTENCE.startswith(b"colibri: error: ")
