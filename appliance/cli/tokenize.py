"""`colibri tokenize`: text to token ids and back. Not here: running the model.

    --json                  {"tokens": [id, ...], "pieces": [str, ...], "n_tokens": int}
    --json --ids-to-text    {"tokens": [id, ...], "text": str, "n_tokens": int}

A piece that is not whole UTF-8 (half an emoji) is shown with U+FFFD; the ids are exact.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from appliance.cli.columns import safe
from appliance.cli.flags import MODEL, add_settings, resolved
from appliance.cli.local import checked_text, read_text
from engine.errors import UsageError
from engine.gguf.reader import read_gguf
from engine.text import open_text

NAME = "tokenize"
HELP = "text to token ids and back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        'examples:\n  colibri tokenize -p "The capital of"                 one line for each token\n'
        "  colibri tokenize -m model.gguf -f letter.txt --json  {tokens, pieces, n_tokens}\n"
        '  colibri tokenize --ids-to-text -p "504 3575 282"       and back\n\n'
        "Names such as <|im_start|> in the text are read as tokens, and the begin token\n"
        "comes first where the model asks for one; --no-special takes the text as plain\n"
        "text and adds nothing."
    )
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the text; without -p and -f it is read from stdin")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the text from a file, byte for byte")
    parser.add_argument("--ids-to-text", action="store_true", help="the text holds ids, with spaces or commas")
    parser.add_argument("--no-special", action="store_true", help="neither add nor read (or show) special tokens")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_settings(parser, MODEL)


def run(args: argparse.Namespace) -> int:
    given = _given(args)
    text = open_text(read_gguf(resolved(args).settings.model_path()))
    special = not args.no_special
    if args.ids_to_text:
        ids = _ids(given)
        found = text.decode(ids, special)
        print(json.dumps({"tokens": ids, "text": found, "n_tokens": len(ids)}) if args.json else found)
        return 0
    ids = text.encode(given, add_special=special, parse_special=special)
    pieces = [text.piece(i) for i in ids]
    if args.json:
        print(json.dumps({"tokens": ids, "pieces": pieces, "n_tokens": len(ids)}))
    else:
        for token, piece in zip(ids, pieces, strict=True):
            print(f"{token:>8}  '{safe(piece, 200)}'")
    return 0


def _given(args: argparse.Namespace) -> str:
    if args.prompt is not None and args.file is not None:
        raise UsageError("-p and -f both give a text; use one")
    if args.prompt is not None:
        return checked_text(args.prompt, "-p")
    if args.file is None and sys.stdin.isatty():
        raise UsageError('no text; give one with -p "TEXT" or -f FILE, or pipe it in')
    return read_text(args.file)


def _ids(given: str) -> list[int]:
    words = re.split(r"[\s,]+", given.strip("[] \t\r\n,"))
    wrong = next((word for word in words if not re.fullmatch(r"[0-9]{1,9}", word)), None)
    if wrong is not None:
        seen = f"'{safe(wrong, 40)}' is no token id" if wrong else "there is no token id"
        raise UsageError(f"{seen}; --ids-to-text takes whole numbers with spaces or commas")
    return [int(word) for word in words]
