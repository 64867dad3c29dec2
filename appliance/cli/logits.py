"""`colibri logits`: teacher-forced, the K likeliest next tokens after each given token. Not here: sampling.

    --json: {"positions": [{"token": id, "top": [[id, logprob], ...]}, ...]}       one entry per given token
"""

import argparse
import json
import re
from pathlib import Path

from appliance.cli.flags import ENGINE, MODEL, add_settings, resolved
from appliance.cli.local import BadInputFile, Local, read_text
from engine.errors import ContextLengthExceeded, InvalidParameter, UsageError

NAME = "logits"
HELP = "the likeliest next tokens after each given token"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri logits -m model.gguf --tokens 504,3575,282 --top 5\n"
        "  colibri tokenize -p 'The capital of' --json | colibri logits --tokens-file - --top 5 --json"
    )
    parser.add_argument("--tokens", metavar="LIST", help="token ids with commas")
    parser.add_argument("--tokens-file", type=Path, metavar="FILE", help="the same from a file, - is stdin")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="how many next tokens, likeliest first")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_settings(parser, MODEL, ENGINE)


def run(args: argparse.Namespace) -> int:
    ids = _ids(args)
    if args.top < 1:
        raise UsageError(f"--top {args.top}: at least 1 is needed")
    local = Local(resolved(args).settings, with_text=False)
    info = local.engine.info
    wrong = next(((i, t) for i, t in enumerate(ids) if not 0 <= t < info.n_vocab), None)
    if wrong:
        raise InvalidParameter(f"token {wrong[1]} at place {wrong[0]}: the vocabulary has ids 0 to {info.n_vocab - 1}")
    if len(ids) > info.n_ctx:
        raise ContextLengthExceeded(f"{len(ids)} tokens are over the context of {info.n_ctx}; give a larger --ctx-size")
    tops = local.call(lambda: local.engine.logits(ids, min(args.top, info.n_vocab)))
    local.close()
    if args.json:
        pairs = [[[int(i), float(lp)] for i, lp in top] for top in tops]
        positions = [{"token": token, "top": top} for token, top in zip(ids, pairs, strict=True)]
        print(json.dumps({"positions": positions}))
    else:
        for token, top in zip(ids, tops, strict=True):
            print(f"{token:>8}  " + "  ".join(f"{i}:{lp:.4f}" for i, lp in top))
    return 0


def _ids(args: argparse.Namespace) -> list[int]:
    if (args.tokens is None) == (args.tokens_file is None):
        raise UsageError("give the token ids with one of --tokens LIST and --tokens-file FILE")
    if args.tokens is not None:
        text, name = args.tokens, "--tokens"
    else:
        is_stdin = str(args.tokens_file) == "-"
        text, name = read_text(None if is_stdin else args.tokens_file), str(args.tokens_file)
    text = text.strip()
    if text.startswith("{"):
        text = _from_object(text, name)
    words = re.split(r"[\s,]+", text.strip("[] \t\r\n,"))
    kind = UsageError if args.tokens is not None else BadInputFile
    if words == [""]:
        raise kind(f"{name} holds no token ids")
    wrong = next((w for w in words if not re.fullmatch(r"\d{1,9}", w)), None)
    if wrong is not None:
        raise kind(f"{name}: '{wrong[:40]}' is no token id; whole numbers with commas or spaces are")
    return [int(word) for word in words]


def _from_object(text: str, name: str) -> str:
    """The ids inside what `tokenize --json` and `run --json` write."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInputFile(f"{name} begins like JSON but is not") from None
    for key in ("tokens", "ids", "prompt_tokens"):
        if isinstance(found, dict) and isinstance(found.get(key), list):
            return ",".join(str(item) for item in found[key])
    raise BadInputFile(f"{name}: the JSON object has no list 'tokens'")
