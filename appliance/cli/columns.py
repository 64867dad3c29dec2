"""Plain text in aligned columns, and a file's own words made safe for a terminal. Not here: what is shown."""

from collections.abc import Sequence

from engine.gguf.layout import quoted


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lines of `rows`, each column as wide as its widest cell but the last; columns in `right` end aligned."""
    n = max((len(row) for row in rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(n)]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def safe(text: str, limit: int = 80) -> str:
    """A foreign text on one line without control characters, cut at `limit`."""
    return quoted(text, limit)[1:-1]


def human_bytes(n: int) -> str:
    """Bytes for people, in binary units: "93.8 MiB"."""
    size = float(n)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def human_count(n: int) -> str:
    """A count for people: "134.5 M"."""
    for power, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")):
        if n >= power:
            return f"{n / power:.1f} {unit}"
    return str(n)
