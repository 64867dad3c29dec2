"""Progress: one rewriting line on a terminal, few plain lines in a file. Not here: who reports it."""

import io

from appliance.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_compiled_kernel_is_a_line_in_a_file() -> None:
    out = io.StringIO()
    progress = Progress(out)
    for i in range(3):
        progress("compile", i + 1, 3, f"kernel{i}")
    progress("ready", 1, 1, "")
    assert out.getvalue().splitlines()[2] == "compiling kernels 3/3  kernel2"


def test_a_terminal_has_one_line_that_is_left_clean() -> None:
    out = Terminal()
    progress = Progress(out)
    progress("compile", 1, 3, "a")
    progress("compile", 2, 3, "b")
    progress("ready", 1, 1, "")
    assert "\n" not in out.getvalue() and out.getvalue().endswith("\r\x1b[2K")


def test_a_quick_load_is_not_worth_a_word() -> None:
    out = io.StringIO()
    progress = Progress(out)
    for done in range(100):
        progress("load", done, 100, "weights")
    assert out.getvalue() == ""
