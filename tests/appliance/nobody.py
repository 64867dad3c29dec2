"""A piece of a test done by a user without rights, in a child of this process. Not here: what it proves."""

import os
from collections.abc import Callable

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
NOBODY = 65534


def as_nobody(work: Callable[[], object]) -> str:
    """`repr(work())` from a child that gave its rights away, or what it died of."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        told = "nothing"
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            told = repr(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, told.encode()[:4096])
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as pipe:
        return pipe.read().decode()
