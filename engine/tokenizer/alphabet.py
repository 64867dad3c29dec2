"""The byte alphabet of byte-level BPE: one printable character for each byte. Not here: which tokens there are.

Printable ASCII and Latin-1 stand for themselves; the other 68 bytes are numbered from U+0100 upwards (GPT-2).
"""

_SHOWN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]

CHAR_OF_BYTE = {byte: chr(byte) for byte in sorted(_SHOWN)} | {byte: chr(0x100 + i) for i, byte in enumerate(_HIDDEN)}
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}

# Every character of the alphabet lies below U+0144, so one latin-1 decode and one table serve any length.
_WRITTEN = {byte: char for byte, char in CHAR_OF_BYTE.items() if byte in set(_HIDDEN)}


def written(raw: bytes) -> str:
    """Bytes as the vocabulary writes them, one character each."""
    return raw.decode("latin-1").translate(_WRITTEN)


def spoken(token: str) -> bytes | None:
    """The bytes behind a token's text, or None when a character of it stands for no byte."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return None
