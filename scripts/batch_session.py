"""Records the session of docs/batch.md: real commands in an empty folder with the bundled model, and what they said.

    python scripts/batch_session.py

Not here: what the page says around it; the README's session (session.py), which needs the container.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "batch.md"
TEXTS = {
    "invoice": ["The invoice of May was charged twice to my card.", "Please send the bill again, the amount is wrong."],
    "delivery": ["My parcel has not arrived since Monday.", "The courier left the package in the rain."],
    "praise": ["Wonderful service, thank you so much!", "The best shop I know, everything was perfect."],
}
TASK = (
    "You sort messages of a shop's customers. invoice: payments, bills, cards, refunds. delivery: parcels, couriers, "
    "addresses, delays. praise: thanks and compliments. Answer with the label that fits best."
)
COMMANDS = [
    "head -3 rows.csv",
    "cat task.txt",
    "colibri batch run -i rows.csv -o tagged.csv --text-column text --id-column id \\\n"
    "    --labels invoice,delivery,praise --instruction-file task.txt --profile batch-tag",
    "cat tagged.csv",
    "colibri batch review tagged.csv -o review.csv",
    "cut -c1-110 review.csv",
    "python3 fill.py   # a person, with a spreadsheet: the column 'corrected'",
    "colibri batch correct review.csv tagged.csv --golden golden.jsonl",
    "cut -c1-150 in.jsonl",
    "colibri batch run -i in.jsonl -o out.jsonl --profile batch-tag --golden golden.jsonl --golden-min 0.5; echo $?",
    "cut -c1-150 out.jsonl",
    "cut -c1-230 out.jsonl.errors.jsonl",
    "colibri batch run -i in.jsonl -o out.jsonl --profile batch-tag",
]
FILL = """import csv, sys
truth = dict(line.strip().split(",") for line in open("truth.txt"))
rows = list(csv.DictReader(open("review.csv", newline="")))
writer = csv.DictWriter(open("review.csv", "w", newline=""), list(rows[0]))
writer.writeheader()
writer.writerows({**row, "corrected": truth[row["custom_id"]]} for row in rows)
"""


def prepare(folder: Path) -> None:
    """The files that the session begins with."""
    rows = [(f"m{n}", text, label) for n, (label, text) in enumerate(
        ((label, TEXTS[label][i]) for i in range(2) for label in TEXTS), 1)]  # fmt: skip
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("id", "text"), *((name, text) for name, text, _ in rows)])
    (folder / "truth.txt").write_text("".join(f"{name},{label}\n" for name, _, label in rows))
    (folder / "task.txt").write_text(TASK + "\n")
    (folder / "fill.py").write_text(FILL)
    asked = [{"messages": [{"role": "user", "content": f"In one word: the capital of {land}?"}], "max_tokens": 8}
             for land in ("France", "Italy")]  # fmt: skip
    lines = [{"custom_id": f"q{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
             for n, body in enumerate(asked, 1)]  # fmt: skip
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"custom_id": "q3"}\n')


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder)
        (folder / "bin").mkdir()
        program = folder / "bin" / "colibri"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m appliance.cli.main "$@"\n')
        program.chmod(0o755)
        env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        parts = []
        for command in COMMANDS:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True, **pipes)
            parts.append(f"$ {command}\n{done.stdout.strip()}".rstrip())
    session = "```console\n" + "\n\n".join(parts) + "\n```"
    text = PAGE.read_text()
    made_part = f"<!-- session -->\n{session}\n<!-- /session -->"
    text = re.sub(r"<!-- session -->.*?<!-- /session -->", lambda _: made_part, text, flags=re.DOTALL)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
