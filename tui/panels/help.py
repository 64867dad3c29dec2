"""The Help screen in lines: live keys, words and signs, commands. Not here: reading the keys from a screen."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tui.panels.picture import Part

WORDS = (
    ("[STOPPED]", "no engine runs"),
    ("[READY]", "takes requests"),
    ("[LOADING]", "starting, shows progress"),
    ("[DRAINING]", "finishing old requests"),
    ("[SWAPPING]", "between two profiles"),
    ("[DEGRADED]", "works, see the banner"),
    ("[CRASHED]", "engine down, queue kept"),
    ("[NO LINK]", "no answer from the service"),
    ("", ""),
    ("resident", "model pages in memory"),
    ("page cache", "file pages kept by Linux"),
    ("majflt", "reads that hit the disk"),
    ("KV", "memory of the context"),
    ("TTFT", "time to first token"),
    ("prefill", "reading the prompt"),
    ("decode", "writing the answer"),
    ("", ""),
    ("W K c", "weights, KV, engine"),
    ("= o .", "cache, other, free memory"),
    ("ok >> ! x", "good, working, warn, bad"),
    (">  -", "cursor, not known"),
    ("( )  ?", "off now, an old number"),
)
EXAMPLES = (":swap long-doc", ":logs api warning", ":rate 5", ":theme colibri-safe-light", ":ascii on", ":report")


class Entry(NamedTuple):
    """One action: its keys as they are shown, what it does, further words, whether it works now."""

    keys: str
    words: str
    tooltip: str = ""
    is_on: bool = True

    def has(self, wanted: str) -> bool:
        return wanted.lower() in f"{self.keys} {self.words} {self.tooltip}".lower()


def chosen(entries: Iterable[Entry], wanted: str) -> list[Entry]:
    """Those in which the words occur."""
    return [entry for entry in entries if entry.has(wanted.strip())]


def key_lines(entries: Sequence[Entry], width: int, height: int) -> list[list[Part]]:
    """One line each; two columns where there are more entries than lines, each as wide as it needs."""
    if len(entries) <= height or width < 34:
        column = _column(entries)
        return [list(_line(entry, column, width)) for entry in entries]
    n_rows = -(-len(entries) // 2)
    left, right = entries[:n_rows], entries[n_rows:]
    room = min(max(_column(left) + cell_len(entry.words) for entry in left) + 1, width - 12)
    columns = _column(left), _column(right)
    lines = [_line(entry, columns[0], room - 1) for entry in left]
    for i, entry in enumerate(right):
        gap = " " * (room - sum(cell_len(part[0]) for part in lines[i]))
        lines[i] = [*lines[i], (gap, ""), *_line(entry, columns[1], width - room)]
    return [[*line] for line in lines]


def _shown(entry: Entry) -> str:
    return entry.keys if entry.is_on else f"({entry.keys})"


def _column(entries: Sequence[Entry]) -> int:
    """Cells for keys: as the longest of them, but no more than twelve."""
    return min(max((cell_len(_shown(entry)) for entry in entries), default=0), 12) + 1


def _line(entry: Entry, column: int, width: int) -> list[tuple[str, str]]:
    keys = f"{_shown(entry):{column}}"
    keys = keys if keys.endswith(" ") else f"{keys} "
    words = entry.words
    if entry.tooltip and len(keys) + len(words) + 2 + len(entry.tooltip) <= width:
        words = f"{words}: {entry.tooltip}"
    words = words[: max(width - len(keys), 1)]
    return [(keys, "strong"), (words, "")] if entry.is_on else [(keys, "dim"), (words, "dim")]


def pairs(rows: Iterable[tuple[str, str]], column: int) -> list[list[Part]]:
    """Words and what they mean."""
    return [[(f"{word:{column}} ", "strong"), meaning] for word, meaning in rows]


def commands(rows: Mapping[str, tuple[str, str]], width: int) -> list[list[Part]]:
    """Each command with what follows it and what it is for, then examples."""
    lines: list[list[Part]] = []
    for word, (follows, words) in rows.items():
        head = f":{word} {follows}".rstrip()
        head = f"{head:22} " if len(words) + 23 <= width else f"{head}  "
        fits = cell_len(head) + len(words) <= width
        lines.append([(head, "strong"), words if fits else ""])
    lines.append([("for example", "dim")])
    lines += [[f"  {example}"] for example in EXAMPLES]
    return lines
