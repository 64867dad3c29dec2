"""docs/profile.md, made of the schema by `python -m appliance.profiles.document`. Not here: the keys (schema.py).

A test compares the file with `page()`, so the page cannot fall behind the settings.
"""

from pathlib import Path

from appliance.profiles.schema import GROUPS, PLANNED, TITLES, TOP, default_words, takes
from appliance.profiles.strict import MOST_BYTES, MOST_DEPTH
from appliance.settings import Settings, about

FILE = Path(__file__).resolve().parents[2] / "docs" / "profile.md"
OPENING = f"""\
# The keys of a profile

<!-- Made by `python -m appliance.profiles.document`; edit appliance/settings.py instead. -->

A profile is one YAML file, `NAME.yaml`: what the engine is started with, how it answers, who may wait. The packaged
ones lie in `profiles/`; a file of the same name in `<data folder>/profiles` wins over them and takes all edits. Each
version that was saved is kept in `.history` beside it.

    default  <  profile  <  COLIBRI_* in the environment  <  flag on the command line

`colibri profile check NAME` tells everything that is wrong with line, column and the nearest known name;
`colibri profile diff A B` says what a change does; `colibri config explain --profile NAME` shows what is in force.

**When a change counts.** *engine*: the worker is started anew, which is a swap. *serving*: from the next request on,
nothing is stopped. What belongs to the process (address, keys, log) cannot stand in a profile.

**How it is read.** Strictly, so that nobody is surprised: a key twice is an error, and so is a key that nothing reads.
A word is what its key wants, never a bool, a number or a date by its looks: `alias: no` is the text "no", `alias: 3.10`
stays 3.10, `threads: 010` is refused (8 or 10?). Anchors, aliases, tags, a second document, tabs, other encodings than
UTF-8, more than {MOST_BYTES // 1024} KiB and more than {MOST_DEPTH} levels are refused. `null`, `~` or nothing after
the colon is as if the line were not there. A byte order mark and Windows line ends are fine.
"""
HEADER = "| Key | What it is | Takes | Default | Why that | Change |\n|---|---|---|---|---|---|"
OWN = {
    "name": ("what the profile is called; equals the file's name without .yaml", "must be there"),
    "summary": ("one line that says what it is for", "none"),
}


def page() -> str:
    """The whole of docs/profile.md."""
    own = [f"| `{key}` | {words} | {takes(key).words} | {default} | | serving |"
           for key, (words, default) in OWN.items()]  # fmt: skip
    parts = [OPENING, "## At the top, without indentation\n", "\n".join([HEADER, *own, *map(_row, TOP)]), ""]
    for group, keys in GROUPS.items():
        parts += [f"## `{group}:`\n", f"{TITLES[group][:1].upper()}{TITLES[group][1:]}.\n",
                  "\n".join([HEADER, *map(_row, keys)]), ""]  # fmt: skip
    planned = "\n".join(f"- `{key}`: {words}." for key, words in PLANNED.items())
    return "\n".join([*parts, "## Not yet\n", "Refused until something reads them:\n", planned, ""])


def _row(key: str) -> str:
    field = Settings.model_fields[key]
    why = str(about(key)["why"]).removeprefix("unset: ")
    cells = (f"`{key}`", field.description, takes(key).words, f"`{default_words(key)}`", why, about(key)["kind"])
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
