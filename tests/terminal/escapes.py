"""What a program's bytes mean to a terminal: text, colours, modes. Not here: drawing them (tmux does)."""

import re

# CSI, OSC, DCS and the two-byte ones; what is left is text.
ESCAPE = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]"
)
SGR = re.compile(rb"\x1b\[([\d;:]*)m")
MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
# Second screen, three kinds of mouse and their encodings, focus, paste, in-band resize reports.
BORROWED = (47, 1047, 1049, 1000, 1002, 1003, 1005, 1006, 1015, 1016, 1004, 2004, 2048)
CURSOR = 25
SYNC = 2026


def text(raw: bytes) -> str:
    """The bytes without escapes."""
    return ESCAPE.sub(b"", raw).decode("utf-8", "replace")


def colours(raw: bytes) -> set[int]:
    """Every SGR number that sets a colour."""
    found = set()
    for match in SGR.finditer(raw):
        numbers = [int(n) for n in re.split(rb"[;:]", match[1]) if n]
        while numbers:
            n = numbers.pop(0)
            if n in (38, 48, 58):
                found.add(n)
                numbers = numbers[4:] if numbers[:1] == [2] else numbers[2:]
            elif 30 <= n <= 37 or 40 <= n <= 47 or 90 <= n <= 97 or 100 <= n <= 107:
                found.add(n)
    return found


def sgr(raw: bytes) -> set[int]:
    """Every plain SGR number that was sent: 1 bold, 4 underline, 7 reverse."""
    return {int(n) for match in SGR.finditer(raw) for n in match[1].split(b";") if n.isdigit()}


def unrestored(raw: bytes) -> list[str]:
    """Modes that the program leaves otherwise than it found them: a shell after it would suffer."""
    last: dict[int, bytes] = {}
    for match in MODE.finditer(raw):
        for mode in match[1].split(b";"):
            last[int(mode)] = match[2]
    left = [f"?{mode} is on" for mode in (*BORROWED, SYNC) if last.get(mode) == b"h"]
    if last.get(CURSOR) == b"l":
        left.append("the cursor is hidden")
    keyboard = re.findall(rb"\x1b\[([<>=])[\d;]*u", raw)
    if keyboard.count(b">") > keyboard.count(b"<"):
        left.append("the keyboard protocol is on")
    return left
