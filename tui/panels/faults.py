"""What the service's check found in a profile, in lines, and what a key under the cursor means. Not here: checking."""

from collections.abc import Iterable

from tui.panels.pieces import Line, marked, plain, wrapped
from tui.snap import Facts

MARKS = {"error": ("E", "bad"), "warning": ("!", "warning")}
# Keys that the service gives no help for: they are about the file, not about the engine.
OF_THE_FILE = {
    "name": "What the profile is called: the file's name without .yaml.",
    "summary": "One line that says what the profile is for.",
}
SAVES = "Save keeps a draft while there are errors. Swap is off until there are none."


def in_order(problems: Iterable[Facts]) -> list[Facts]:
    """From the top of the text to its end; on one place the errors first."""
    return sorted(problems, key=lambda p: (p.whole("line") or 0, p.whole("col") or 0, p.text("severity")))


def of_plan(plan: Facts) -> list[Facts]:
    """What the planner finds wrong: of the whole, not of a line."""
    found = [("error", text) for text in plan.texts("errors")] + [("warning", text) for text in plan.texts("warnings")]
    return [Facts({"severity": severity, "message": message}) for severity, message in found]


def counted(problems: Iterable[Facts]) -> tuple[int, int]:
    """Errors and warnings."""
    found = [problem.text("severity") for problem in problems]
    return found.count("error"), len(found) - found.count("error")


def summary(problems: Iterable[Facts]) -> str:
    errors, warnings = counted(problems)
    return f"{errors} error{'' if errors == 1 else 's'}  {warnings} warning{'' if warnings == 1 else 's'}"


def marks(problems: Iterable[Facts]) -> dict[int, str]:
    """The sign in the margin of each line, from 1; an error wins over a warning."""
    found: dict[int, str] = {}
    for problem in problems:
        line, mark = problem.whole("line") or 1, MARKS.get(problem.text("severity"), ("!", ""))[0]
        found[line] = "E" if "E" in (found.get(line), mark) else mark
    return found


def listed(problems: list[Facts], width: int, at: int | None = None) -> list[Line]:
    """Each with its place, the likelier name behind it; `at` is the one that the cursor was sent to."""
    lines: list[Line] = []
    for index, problem in enumerate(problems):
        mark, meaning = MARKS.get(problem.text("severity"), ("!", "warning"))
        place = f"{problem.text('line')}:{problem.text('col', '?')}" if problem.has("line") else "plan"
        hint = f"; did you mean '{problem.text('hint')}'?" if problem.text("hint") else ""
        here = ">" if index == at else " "
        first, *more = wrapped(f"{problem.text('message')}{hint}", width, f"{here}{mark} {place:<7} ")
        lines += [[(plain(first)[:2], meaning), (plain(first)[2:], "")], *more]
    return lines


def help_of(key: str, field: Facts, width: int) -> list[Line]:
    """What the key does, what it may be, what it is without it, whether a change needs a new engine."""
    if not key:
        return wrapped("Move the cursor onto a key to read about it.", width)
    if not field and key in OF_THE_FILE:
        return wrapped(OF_THE_FILE[key], width)
    if not field:
        return marked(wrapped(f"Nothing is known of '{key}'.", width), "dim")
    default = field.get("default")
    shown = "none" if default is None else "true" if default is True else "false" if default is False else str(default)
    kind = {"engine": "yes, a new engine", "serving": "no, applied at once", "process": "not part of a profile"}
    lines = [*wrapped(field.text("help", "?"), width), "", f"Default {shown}"[:width]]
    lines += wrapped(field.text("why"), width) if field.text("why") else []
    return [*lines, *wrapped(f"Restart: {kind.get(field.text('kind'), field.text('kind', '?'))}", width)]


def key_at(text: str, line: int) -> str:
    """The key of the line at the cursor, from 0; of a line without one, the key above that it belongs to."""
    lines = text.splitlines()
    for index in range(min(line, len(lines) - 1), -1, -1):
        body = lines[index].strip()
        if not body or body.startswith("#"):
            if index == line:
                return ""
            continue
        if ":" in body and not body.startswith("- "):
            return body.partition(":")[0].strip()
    return ""
