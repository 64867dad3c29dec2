"""`colibri batch`: rows by the thousand, here or by the running service. Not here: what each action does."""

import argparse
from collections.abc import Callable
from pathlib import Path

from appliance.cli.flags import ENGINE, MODEL, SAMPLING, TEMPLATE, add_settings
from appliance.cli.parser import Parser
from appliance.cli.remote import add_remote

NAME = "batch"
HELP = "rows by the thousand: answer a file, tag a table, review the doubtful ones"

# action: (module, function, the sentence of the help)
ACTIONS = {
    "run": ("batch_run", "run", "answer every row of a file here, without a server; run again to go on"),
    "review": ("batch_review", "review", "the least certain answers first, as a table for a person to correct"),
    "correct": ("batch_review", "correct", "take a corrected review in, and make a golden set of it"),
    "add": ("batch_remote", "add", "give a file to the running service, or to a spool folder"),
    "list": ("batch_remote", "show_all", "the running service's batches"),
    "show": ("batch_remote", "show", "one batch of the running service"),
    "cancel": ("batch_remote", "cancel", "end one batch; what is answered stays"),
}
EXAMPLES = """\
examples:
  colibri batch run -i in.jsonl -o out.jsonl --profile batch-tag
  colibri batch run -i in.jsonl -o out.jsonl --window 22:00-06:00
  colibri batch run -i rows.csv -o tagged.csv --text-column text --labels spam,ham --instruction-file task.txt
  colibri batch review tagged.csv -o review.csv          then fill in the column 'corrected'
  colibri batch correct review.csv tagged.csv --golden golden.jsonl
  colibri batch run -i in.jsonl -o out.jsonl --golden golden.jsonl --golden-min 0.95
  colibri batch add in.jsonl --spool /srv/night          then: colibri batch run --spool /srv/night

An input line: {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
Beside OUT lie OUT.meta (which input it answers) and OUT.errors.jsonl (rows without an answer, by line).
"""
TABLE = ("text_column", "labels", "instruction_file", "id_column")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    made = {}
    for name, (_, _, words) in ACTIONS.items():
        made[name] = one = actions.add_parser(name, help=words, description=f"{words[:1].upper()}{words[1:]}.")
        one.add_argument("--json", action="store_true", help="one JSON object on stdout")
    _run(made["run"])
    review = made["review"]
    review.add_argument("output", type=Path, metavar="OUT", help="what a run has written")
    review.add_argument("-i", "--input", type=Path, metavar="IN", help="its input; for a table it is found by itself")
    review.add_argument("-o", "--output", dest="review", type=Path, required=True, metavar="CSV")
    review.add_argument("--below", type=float, default=1.0, metavar="P",
                        help="only answers whose confidence is under P (default: all)")  # fmt: skip
    correct = made["correct"]
    correct.add_argument("review", type=Path, metavar="CSV", help="a review whose column 'corrected' was filled in")
    correct.add_argument("output", type=Path, metavar="OUT", help="what the run has written")
    correct.add_argument("-i", "--input", type=Path, metavar="IN", help="its input; for a table it is found by itself")
    correct.add_argument("--golden", type=Path, metavar="FILE", help="write the looked-at rows as a golden set")
    add = made["add"]
    add.add_argument("input", type=Path, metavar="IN", help="a file of rows")
    add.add_argument("--spool", type=Path, metavar="DIR", help="a folder that 'batch run --spool' works off")
    add.add_argument("--window", metavar="HH:MM-HH:MM", help="hours in which the service may work on it")
    add.add_argument("--profile", metavar="NAME", help="the service works on it only while this profile serves")
    add.add_argument("--golden", type=Path, metavar="FILE", help="rows with known answers, asked first")
    add.add_argument("--golden-min", type=float, default=0.9, metavar="SHARE",
                     help="the batch is held while fewer of them come out right (default: 0.9)")  # fmt: skip
    for name in ("show", "cancel"):
        made[name].add_argument("id", metavar="ID")
    made["list"].add_argument("--limit", type=int, default=20, metavar="N", help="at most so many (default: 20)")
    for name in ("add", "list", "show", "cancel"):
        words = "folder with the service's keys (default: COLIBRI_DATA_DIR, else the user's data folder)"
        made[name].add_argument("--data-dir", type=Path, metavar="DIR", help=words)
        add_remote(made[name])


def _run(one: argparse.ArgumentParser) -> None:
    one.add_argument("-i", "--input", type=Path, metavar="IN", help="rows as JSON lines, or a table (.csv, .tsv)")
    one.add_argument("-o", "--output", type=Path, metavar="OUT", help="answers; the same again goes on with them")
    one.add_argument("--errors", type=Path, metavar="FILE", help="rows without an answer (default: OUT.errors.jsonl)")
    one.add_argument("--window", metavar="HH:MM-HH:MM", help="work in these hours only; outside them wait")
    one.add_argument("--spool", type=Path, metavar="DIR", help="instead of -i and -o: every file in DIR, oldest first")
    one.add_argument("--golden", type=Path, metavar="FILE", help="rows with known answers, asked first")
    one.add_argument("--golden-min", type=float, default=0.9, metavar="SHARE",
                     help="begin only if so many of them come out right (default: 0.9)")  # fmt: skip
    table = one.add_argument_group("a table")
    table.add_argument("--text-column", metavar="NAME", help="the column with the text to tag")
    table.add_argument("--labels", metavar="A,B,...", help="the labels, with commas, or @FILE with one a line")
    table.add_argument("--instruction-file", type=Path, metavar="FILE", help="what the model is told before each text")
    table.add_argument("--id-column", metavar="NAME", help="a column of unique names (default: the row's number)")
    add_settings(one, MODEL, ("alias",), ENGINE, TEMPLATE, SAMPLING)
    words = "folder with edited profiles (default: COLIBRI_DATA_DIR, else the user's data folder)"
    one.add_argument("--data-dir", type=Path, metavar="DIR", help=words)


def run(args: argparse.Namespace) -> int:
    from importlib import import_module

    module, function, _ = ACTIONS[args.action]
    act: Callable[[argparse.Namespace], int] = getattr(import_module(f"appliance.cli.{module}"), function)
    return act(args)
