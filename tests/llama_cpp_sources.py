"""Vocabularies, reference ids and chat templates from llama.cpp's source archive, fetched once. Not here: the tests.

    models() / "ggml-vocab-*.gguf"      vocabularies; beside some of them .inp (texts) and .out (their ids)
    models() / "templates" / "*.jinja"  chat templates of real models

They come with the source archive of the package llama-cpp-python, which pip fetches (77 MB) from whatever index it is
set up for, and stay in the user's cache. `python -m tests.llama_cpp_sources` fetches them before any test.
"""

import fcntl
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

from tests.conftest import USERS_CACHE

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
ARCHIVE = f"llama_cpp_python-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = PurePosixPath(f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models")
KEPT = USERS_CACHE / "colibri" / "test-files"


@cache
def models() -> Path:
    """The folder `models` of the archive; RuntimeError says what to do where it cannot be had."""
    folder = KEPT / f"llama-cpp-models-{VERSION}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                whole = _unpacked(_archive(Path(scratch)), Path(scratch))
                whole.rename(folder)  # last: a folder that is there is whole
    return folder


def _archive(scratch: Path) -> Path:
    """The archive: one that somebody laid into the cache, or what pip fetches."""
    laid = KEPT / ARCHIVE
    if laid.is_file():
        return _checked(laid)
    # Only this package from source: what pip needs to look into the archive may come ready-made.
    words = ["download", "--no-deps", "--no-binary", PACKAGE, "--dest", str(scratch), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words], capture_output=True, text=True
    )
    found = scratch / ARCHIVE
    if not found.is_file():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(
            f"tests compare with files of {PACKAGE} {VERSION}, and pip could not fetch its source archive; pip said: "
            f"{said}. Run this once where pip reaches a package index, or put {ARCHIVE} into {KEPT}"
        )
    return _checked(found)


def _checked(archive: Path) -> Path:
    with archive.open("rb") as file:
        seen = hashlib.file_digest(file, "sha256").hexdigest()
    if seen != SHA256:
        raise RuntimeError(f"{archive.name} has SHA-256 {seen}, not {SHA256}; the expected ids belong to the latter")
    return archive


def _unpacked(archive: Path, scratch: Path) -> Path:
    """Only the folder that is wanted, 76 MB of 130."""
    out = scratch / "models"
    with tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if member.isfile() and INSIDE in name.parents:
                to = out / name.relative_to(INSIDE)
                to.parent.mkdir(parents=True, exist_ok=True)
                data = tar.extractfile(member)
                assert data is not None
                to.write_bytes(data.read())
    return out


if __name__ == "__main__":
    try:
        print(models())  # noqa: T201
    except RuntimeError as error:
        sys.exit(f"llama_cpp_sources: {error}")
