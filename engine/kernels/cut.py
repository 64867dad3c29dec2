"""What a process says when a mapped file was cut under it, before it ends. Not here: who asks for it (cli/local.py).

Reading a page that the file no longer has raises SIGBUS in the middle of a kernel. No Python runs there, so the
handler is compiled code that calls `write` and `_exit` and nothing else: both may be called in a signal handler.
"""

import ctypes
import signal
from typing import Any

import numpy as np

from engine.errors import BadModelFile
from engine.kernels.jit import kernel
from engine.kernels.vec import I32, I64, call, i64, make

STDERR = 2
SENTENCE = (
    b"colibri: error: the model's file was cut, or its disk failed, while it was being read; put it back whole, or take"
    b" --load-mode resident, which needs it only while loading\n"
)
_TEXT = np.frombuffer(SENTENCE, np.uint8)
_EXIT_CODE = BadModelFile.exit_code


def _write(b: Any, fd: Any, p: Any, n: Any) -> Any:
    return call(b, "write", I64, [b.trunc(fd, I32), p, n])


def _leave(b: Any, code: Any) -> Any:
    return b.sext(call(b, "_exit", I32, [b.trunc(code, I32)]), I64)


_write_op = make(i64, (i64,) * 3, _write)
_leave_op = make(i64, (i64,), _leave)


@kernel(1)
def say_and_leave(signum):
    """A signal handler."""
    _write_op(STDERR, _TEXT.ctypes.data, _TEXT.size)
    _leave_op(_EXIT_CODE)


def end_plainly() -> None:
    """From now on a bus error ends this process with one sentence and the exit code of a bad model file."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGBUS, say_and_leave.address)
