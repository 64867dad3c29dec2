"""The facts of the GGUF format that reader and writer share, and the limits a real file never passes. Not here: I/O.

    offset  0   4 bytes   "GGUF"
            4   uint32    version (2 and 3 have the same layout)
            8   uint64    number of tensors
           16   uint64    number of metadata entries
           24             entries: key string, uint32 kind, value
                          tensors: name string, uint32 n_dims, n_dims x uint64 (k first), uint32 type, uint64 offset
                          zeros up to a multiple of general.alignment (32 without the key)
                          data: each tensor at its offset from here

    string = uint64 length + bytes; array = uint32 kind + uint64 count + values. All numbers little-endian.
"""

import struct

MAGIC = b"GGUF"
VERSIONS = (2, 3)
COUNTS = struct.Struct("<IQQ")  # version, tensors, entries
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
ARRAY_HEAD = struct.Struct("<IQ")

STRING, ARRAY, BOOL = 8, 9, 7
# kind number -> (name, struct letter); string and array have their own code.
KINDS: dict[int, tuple[str, str]] = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    BOOL: ("bool", "B"),
    STRING: ("string", ""),
    ARRAY: ("array", ""),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
KIND_OF_NAME = {name: number for number, (name, _) in KINDS.items()}
# Fewest bytes that one value of a kind takes in the file: bounds every count before anything is allocated.
MIN_BYTES = {number: struct.calcsize("<" + letter) for number, (_, letter) in KINDS.items() if letter}
MIN_BYTES |= {STRING: U64.size, ARRAY: ARRAY_HEAD.size}
MIN_ENTRY_BYTES = U64.size + U32.size + 1
MIN_TENSOR_BYTES = U64.size + U32.size + U64.size + U32.size + U64.size

DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_HEADER_BYTES = 256 << 20  # a 262k vocabulary with merges and the Hugging Face JSON beside it: about 50 MB
MAX_ENTRIES = 1 << 16
MAX_TENSORS = 1 << 20
MAX_ITEMS = 1 << 23  # all array items of a file; a 262k vocabulary has about 1.3 million
MAX_ARRAYS = 1 << 16  # an empty array takes twelve bytes of the file and far more of the memory
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 255
MAX_DEPTH = 4
MAX_DIMS = 4
MAX_ELEMENTS = 1 << 44  # values of one tensor; the largest published one has about 2^34


def quoted(text: str, limit: int = 80) -> str:
    """A file's own text made safe for a message: quoted, escapes neutralised, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return "'" + "".join(c if c.isprintable() and c != "\\" else ascii(c)[1:-1] for c in cut) + "'"


def padded(n: int, alignment: int) -> int:
    """`n` rounded up to a multiple of `alignment`."""
    return -(-n // alignment) * alignment
