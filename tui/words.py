"""Text from outside made safe for a terminal, and text cut to a width. Not here: numbers (units.py), colours."""

from rich.cells import cell_len, set_cell_size


def plain(text: str, most: int = 2000) -> str:
    """Text from outside on one line, cut at `most` characters, without a sign that a terminal would obey or not draw.

    Control characters of a model's name or a log line would move the cursor; those of direction would turn the line.
    """
    text = text[:most].replace("\t", "    ").replace("\n", " ")
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def fit(text: str, width: int, end: str = "~") -> str:
    """The text in exactly `width` cells: padded, or cut with a sign that says so."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - len(end)) + end if width > len(end) else set_cell_size(text, width)


def ascii_only(text: str) -> str:
    """The text in 0x20..0x7e: what a console without UTF-8 can show; each other character becomes a question mark."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)
