"""`colibri run`: one prompt, one answer, as text that streams or as one JSON object. Not here: several turns (chat.py).

    --json: {"prompt_tokens": [id, ...], "tokens": [id, ...], "text": str, "finish_reason": "stop" | "length",
             "timings": {llama-server's names}, "stats": {..., "prompt": {...}, "answer": {...}},
             "logprobs": [{"id", "logprob", "top": [[id, lp], ...]}]}

`tokens` holds every generated id, the one that ended the answer too; `logprobs` is there with --logprobs only. `prompt`
and `answer` in `stats` are what each used up (engine/spent.py): the prompt's part ends with the first token.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from appliance.cli.flags import ENGINE, MODEL, SAMPLING, TEMPLATE, add_settings, resolved
from appliance.cli.local import End, Local, Prefill, Token, checked_text, read_text
from appliance.cli.progress import Progress
from appliance.cli.stats import lines, spent_json
from engine.errors import UsageError

NAME = "run"
HELP = "answer one prompt"
MOST_LOGPROBS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        'examples:\n  colibri run -p "What is the capital of France?"\n'
        "  colibri run -m model.gguf -f letter.txt -n 200 --temp 0 --json\n"
        '  echo "Once upon a time" | colibri run --raw -n 50 --seed 7\n\n'
        "The prompt goes through the model's chat template;\n"
        "--raw gives it to the model as it is."
    )
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; without -p and -f it is read from stdin")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the prompt from a file")
    parser.add_argument("-sys", "--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument("--raw", action="store_true", help="no chat template")
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end before this text; may repeat")
    parser.add_argument("--ignore-eos", action="store_true", help="go on where the model would end its answer")
    parser.add_argument("--logprobs", type=int, default=0, metavar="K",
                        help=f"with --json: logprobs of each token and the K likeliest, at most {MOST_LOGPROBS}")
    parser.add_argument("--stats", action="store_true",
                        help="on stderr: where the weights are, time of a token by part, bytes read, page faults")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of text")
    add_settings(parser, MODEL, ENGINE, TEMPLATE, SAMPLING)


def run(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    if not 0 <= args.logprobs <= MOST_LOGPROBS:
        raise UsageError(f"--logprobs {args.logprobs}: 0 to {MOST_LOGPROBS} is allowed")
    if args.logprobs and not args.json:
        raise UsageError("--logprobs needs --json: text has no place for them")
    if args.raw and args.system:
        raise UsageError("--system needs the chat template, which --raw leaves out; write it into the prompt")
    if "" in args.stop:
        raise UsageError("--stop is empty; an empty text is everywhere")
    settings = resolved(args).settings
    sampling = settings.sampling()
    local = Local(settings)
    if args.raw:
        ids = local.text.encode(prompt, add_special=True, parse_special=True)
    else:
        system = [{"role": "system", "content": checked_text(args.system, "--system")}] if args.system else []
        ids = local.chat_ids([*system, {"role": "user", "content": prompt}])
    answer = _answer(local, ids, sampling, settings.n_predict, args)
    if args.json:
        print(json.dumps(answer))
    local.close()
    return 0


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt is not None and args.file is not None:
        raise UsageError("-p and -f both give a prompt; use one")
    if args.prompt is not None:
        return checked_text(args.prompt, "-p")
    if args.file is None and sys.stdin.isatty():
        raise UsageError('no prompt; give one with -p "TEXT" or -f FILE, or pipe it in (colibri chat talks)')
    return read_text(args.file)


def _answer(local: Local, ids: list[int], sampling: Any, n_predict: int, args: argparse.Namespace) -> dict[str, Any]:
    tokens: list[Token] = []
    end: End | None = None
    progress = Progress()
    stop = [checked_text(text, "--stop") for text in args.stop]
    given = {"stop": stop, "n_logprobs": args.logprobs, "ignore_eos": args.ignore_eos}
    for event in local.generate(ids, sampling, n_predict, **given):
        if isinstance(event, Prefill):
            if sys.stderr.isatty() and event.done < event.total:
                progress.say_over(f"reading the prompt {event.done}/{event.total}")
            continue
        progress.close()
        if isinstance(event, End):
            end = event
        else:
            tokens.append(event)
        if not args.json and event.text:
            sys.stdout.write(event.text)
            sys.stdout.flush()
    assert end is not None, "a generation that nobody cancelled has an end"
    text = "".join(token.text for token in tokens) + end.text
    if not args.json and not text.endswith("\n"):
        print()
    answer: dict[str, Any] = {
        "prompt_tokens": ids,
        "tokens": [token.id for token in tokens],
        "text": text,
        "finish_reason": end.finish_reason,
        "timings": end.timings,
        "stats": {**local.facts(), "seed": end.seed},
    }
    if end.spent:
        prompt, rest = end.spent
        answer["stats"] |= {"prompt": spent_json(prompt), "answer": spent_json(rest)}
        if args.stats:
            for line in lines(local.engine.info, end.timings, prompt, rest):
                print(line, file=sys.stderr)
    if args.logprobs:
        answer["logprobs"] = [{"id": t.id, "logprob": t.logprob, "top": [list(pair) for pair in t.top]} for t in tokens]
    return answer
