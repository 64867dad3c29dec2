"""What is wrong, in a frame under the tabs for as long as it is wrong. Not here: what is wrong (problems.py)."""

from rich.text import Text

from tui.panels.pieces import marked, wrapped
from tui.problems import Problem
from tui.widgets.panel import Line, Panel

MOST_LINES = 6


class Banner(Panel, can_focus=False):
    """One box for all problems; it takes no room when there are none."""

    def set(self, problems: list[Problem], width: int, height: int) -> None:
        """Show these; the first gives the title, each further one a line."""
        self.display = bool(problems)
        if not problems:
            return
        first, *others = problems
        title, texts = first.title, list(first.lines)
        if len(title) + len(first.right) > width - 12 and ": " in title:
            title, _, rest = title.partition(": ")  # a long reason goes on below its first word
            texts.insert(0, rest)
        # All of each sentence, also in a small window: what to do stands at its end.
        lines: list[Line] = [line for text in texts for line in wrapped(text, width - 4)]
        for other in others:
            lines += marked(wrapped(f"{other.mark} {other.title}", width - 4), other.meaning)
        most = min(MOST_LINES, max((height - 8) // 2, 1))
        lines = lines[:most] or [Text("")]
        self.set_class(first.meaning == "bad", "-bad")
        self.set_class(first.meaning == "good", "-good")
        self.styles.height = len(lines) + 2
        self.show(lines, f"{first.mark} {title}", first.right)
