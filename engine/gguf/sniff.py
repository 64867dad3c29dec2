"""What a file is that does not begin like a GGUF file, in words its owner understands. Not here: reading GGUF."""

import re
import struct

# First bytes -> what it is and what to do. The old formats write their magic as a little-endian number.
_PREFIXES: tuple[tuple[tuple[bytes, ...], str], ...] = (
    ((b"lmgg", b"ggml"), "a GGML file of before August 2023; get the model as GGUF"),
    ((b"fmgg", b"ggmf"), "a GGMF file of before August 2023; get the model as GGUF"),
    ((b"tjgg", b"ggjt"), "a GGJT file of before August 2023; get the model as GGUF"),
    ((b"algg", b"ggla"), "a GGLA adapter of an old llama.cpp; get it as GGUF"),
    ((b"PK\x03\x04",), "a zip archive, perhaps a PyTorch checkpoint; get the model as GGUF"),
    ((b"\x80\x02", b"\x80\x03", b"\x80\x04"), "a Python pickle, perhaps a PyTorch checkpoint; get the model as GGUF"),
    ((b"\x1f\x8b",), "a gzip archive; unpack it first"),
    ((b"\x28\xb5\x2f\xfd",), "a zstd archive; unpack it first"),
    ((b"\xfd7zXZ",), "an xz archive; unpack it first"),
    ((b"7z\xbc\xaf",), "a 7z archive; unpack it first"),
    ((b"\x7fELF",), "a program, not a model"),
    ((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "a picture, not a model"),
    ((b"FUGG",), "a GGUF file with its bytes in reverse order; get the little-endian file"),
)


def foreign(head: bytes, n_bytes: int) -> str:
    """Say what a file with these first bytes is; `head` is up to 1024 bytes, `n_bytes` the file's size."""
    lowered = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"version https://git-lfs"):
        return _lfs(head)
    if lowered.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<script")):
        return "an HTML page, such as a sign-in or error page saved under this name; download the model again"
    for prefixes, words in _PREFIXES:
        if head.startswith(prefixes):
            return words
    if _is_safetensors(head, n_bytes):
        return "a safetensors file; get the model as GGUF or convert it"
    if not head.strip(b"\0"):
        return "nothing but zeros at its start, as after a broken download; download it again"
    if lowered.startswith((b"{", b"[")) and _is_text(head):
        return "a JSON text, such as a server's error answer or a config file; download the model again"
    if _is_text(head):
        return "a text file, not a model"
    return f"a file of unknown kind (first bytes {head[:8].hex(' ')}), not GGUF"


def _lfs(head: bytes) -> str:
    size = re.search(rb"\bsize (\d{1,19})\b", head)
    of = f" of {int(size.group(1)):,} bytes" if size else ""
    return f"a Git LFS pointer: it only names the real file{of}; fetch that with `git lfs pull` or download it"


def _is_safetensors(head: bytes, n_bytes: int) -> bool:
    if len(head) < 10:
        return False
    (length,) = struct.unpack_from("<Q", head)
    return 2 <= length <= n_bytes - 8 and head[8:9] == b"{"


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # a character cut by the end of the look is no fault
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\r\n" for c in text)
