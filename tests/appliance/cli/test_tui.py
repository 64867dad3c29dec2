"""`colibri tui` becomes the terminal program and says so when it cannot. Not here: the program (tests/tui)."""

import subprocess
import sys

from tests.appliance.cli.shell import colibri, environment


def test_it_becomes_the_program_with_every_word_given() -> None:
    """A word that looks like an option is the program's business; `config` prints what it understood and leaves."""
    done = colibri("tui", "--url", "http://127.0.0.1:9000", "--ascii", "config")
    assert done.code == 0, done.err
    assert any("http://127.0.0.1:9000" in line and "--url" in line for line in done.out.splitlines()), done.out


def test_a_pipe_is_refused_by_the_program_itself() -> None:
    done = colibri("tui")
    assert (done.code, done.out) == (64, "") and "colibri status" in done.err and len(done.err.splitlines()) == 1


def test_the_help_teaches_and_lists_the_program_s_options() -> None:
    done = colibri("tui", "--help")
    assert done.code == 0 and done.out.index("ssh -t") < done.out.index("--url")


def test_without_its_packages_it_says_what_is_missing() -> None:
    """An interpreter that finds no textual: `find_spec` is asked the same way for a package that is not installed."""
    script = "import sys; sys.modules['textual'] = None\nfrom appliance.cli.main import main\nsys.exit(main(['tui']))"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("colibri: error: the terminal program cannot start: textual")
    assert "Traceback" not in done.stderr


def test_the_command_imports_nothing_of_the_program() -> None:
    script = "import sys, appliance.cli.tui; print({'tui', 'textual', 'rich'} & {n.split('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
