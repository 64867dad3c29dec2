"""A profile's text judged: every problem of it at once, each with its place, and the values that are right.

Not here: YAML (strict.py), what a key takes (schema.py, values.py), files (store.py), whether it fits (the planner).
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from appliance.profiles.problems import Problem, errors, nearest
from appliance.profiles.schema import (
    ALSO,
    GROUPS,
    KEYS,
    NAME,
    PLANNED,
    SUMMARY_LENGTH,
    TOP,
    ProfileModel,
    path_of,
    takes,
)
from appliance.profiles.strict import MOST_PROBLEMS, Document, Entry, Group, Place, Refused, Scalar, read
from appliance.profiles.values import MISSING, value_of
from appliance.settings import Settings, about
from engine.errors import ColibriError

# Says whether a model of that name can be opened, by raising a ColibriError that explains why not.
FindModel = Callable[[str], object]


@dataclass(slots=True)
class Checked:
    """What a text came to. `values` are flat, as `settings.resolve` takes them, and hold only what is right."""

    document: Document
    values: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    summary: str = ""
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not errors(self.problems)


def check(text: bytes | str, name: str, known: Collection[str]) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The values of the profile `name`, or None if there are errors, and all problems in the order of the file."""
    checked = examine(text, name, known)
    return (checked.values if checked.is_good else None), checked.problems


def examine(text: bytes | str, name: str, known: Collection[str], find_model: FindModel | None = None) -> Checked:
    """`known` are the profiles that `fallback` may name; without `find_model` the model is not looked for."""
    document = read(text)
    checker = _Checker(document, name, known, find_model)
    if document.root is not None:
        checker.run(document.root)
    found = checker.checked
    found.problems = sorted([*document.problems, *found.problems], key=lambda p: (p.line, p.col))[:MOST_PROBLEMS]
    return found


class _Checker:
    def __init__(self, document: Document, name: str, known: Collection[str], find_model: FindModel | None) -> None:
        self.checked = Checked(document)
        self._places: dict[str, Place] = {}
        self._name = name
        self._known = known
        self._find_model = find_model

    def run(self, root: Group) -> None:
        own: dict[str, Any] = {}
        for key, entry in root.entries.items():
            if key in GROUPS:
                self._group(key, entry)
            elif key in ("name", "summary"):
                own |= self._take(key, key, entry)
            elif key in TOP:
                self.checked.values |= self._take(key, key, entry)
            else:
                self._unknown(key, "", entry)
        self._ranges()
        self._own(own)
        self._sense()

    def _tell(self, place: Place, path: str, message: str, hint: str = "", severity: str = "error") -> None:
        found = Problem(place.line, place.col, severity, path, message, hint)  # type: ignore[arg-type]
        self.checked.problems.append(found)

    def _group(self, group: str, entry: Entry) -> None:
        node = entry.value
        if isinstance(node, Group):
            for key, child in node.entries.items():
                if key in GROUPS[group]:
                    self.checked.values |= self._take(key, f"{group}.{key}", child)
                else:
                    self._unknown(key, group, child)
        elif not isinstance(node, Refused) and not (isinstance(node, Scalar) and node.is_plain and not node.text):
            self._tell(node.place, group, f"'{group}:' is a group; write its keys on the lines below it")

    def _take(self, key: str, path: str, entry: Entry) -> dict[str, Any]:
        place = entry.key if isinstance(entry.value, Refused) else entry.value.place
        self._places[key] = place

        def tell(severity: str, words: str, hint: str) -> None:
            self._tell(place, path, f"{path} {words}", hint, severity)

        value = value_of(entry.value, takes(key), tell)
        return {} if value is MISSING else {key: value}

    def _unknown(self, key: str, group: str, entry: Entry) -> None:
        path = f"{group}.{key}" if group else key
        shown = path if len(path) <= 60 else f"{path[:57]}..."
        if key in PLANNED and not group:
            self._tell(entry.key, path, f"nothing reads '{key}' yet: {PLANNED[key]}; leave the line out")
        elif key in KEYS:
            home = path_of(key).rpartition(".")[0]
            where = f"under '{home}:'" if home else "at the top, without indentation"
            self._tell(entry.key, path, f"nothing reads the key '{shown}'; it goes {where}", path_of(key))
        elif key in Settings.model_fields and about(key)["kind"] == "process":
            self._tell(entry.key, path, f"'{key}' belongs to the process; set it by flag or environment")
        else:
            near = nearest(key, GROUPS[group]) if group else ""
            near = near or ALSO.get(key) or nearest(key, (*KEYS, *GROUPS, "name", "summary"))
            self._tell(entry.key, path, f"nothing reads the key '{shown}'", path_of(near))

    def _ranges(self) -> None:
        """Pydantic's limits, in our words."""
        values = self.checked.values
        shape: dict[str, Any] = {key: values[key] for key in TOP if key in values}
        shape |= {group: {key: values[key] for key in keys if key in values} for group, keys in GROUPS.items()}
        try:
            model = ProfileModel.model_validate({"name": "x", **shape})
        except ValidationError as error:
            for found in error.errors(include_url=False, include_context=False):
                key = next(part for part in reversed(found["loc"]) if part in KEYS)
                path, wants = path_of(str(key)), takes(str(key))
                seen = str(values.pop(key, found["input"]))
                seen = seen if len(seen) <= 60 else f"{seen[:57]}..."
                self._tell(self._places[str(key)], path, f"{path} is {seen}: {wants.words} is expected")
            return self._ranges()  # what is left is right, and may be written in other ways (auto, 0)
        flat = model.model_dump(exclude_unset=True)
        for key in GROUPS:
            flat |= flat.pop(key, {})
        flat.pop("name")
        self.checked.values = flat
        return None

    def _own(self, own: dict[str, Any]) -> None:
        """The name and the summary."""
        if "name" in own:
            name = self.checked.name = own["name"]
            place = self._places["name"]
            if not re.fullmatch(NAME, name):
                self._tell(place, "name", f"name is '{name[:60]}': {takes('name').words} are expected")
            elif name != self._name:
                words = f"the name '{name}' differs from the file's, {self._name}"
                words += f", and there is a profile '{name}' already" if name in self._known else ""
                self._tell(place, "name", words, self._name)
        elif "name" not in self._places and self.checked.document.is_whole:
            self._tell(Place(1, 1, 0, 0), "name", f"the key 'name' is missing; write 'name: {self._name}'")
        if len(summary := own.get("summary", "")) > SUMMARY_LENGTH:
            words = f"summary has {len(summary)} characters; {takes('summary').words} are expected"
            self._tell(self._places["summary"], "summary", words)
        self.checked.summary = " ".join(summary.split())

    def _sense(self) -> None:
        """What is right by itself and wrong together."""
        values, places = self.checked.values, self._places
        safe = values.get("fallback")
        if safe is not None and safe not in self._known and safe != self._name:
            self._tell(places["fallback"], "fallback", f"fallback: there is no profile '{safe[:60]}'",
                       nearest(safe, sorted(self._known)))  # fmt: skip
        elif safe is not None and safe == self._name and safe != "fallback":
            words = "fallback is the profile itself; name one that starts when this one does not"
            self._tell(places["fallback"], "fallback", words, "fallback")
        if values.get("ubatch_size", 0) > values.get("batch_size", 1 << 30):
            words = f"ubatch_size {values['ubatch_size']} is over batch_size {values['batch_size']}, which counts"
            self._tell(places["ubatch_size"], "ubatch_size", words, str(values["batch_size"]), "warning")
        n_ctx = values.get("ctx_size") or 1 << 30
        for key in ("n_predict", "warmup_tokens"):
            if values.get(key, 0) >= n_ctx:
                words = f"{path_of(key)} {values[key]} leaves no room in ctx_size {n_ctx}, which counts"
                self._tell(places[key], path_of(key), words, severity="warning")
        if values.get("queue_timeout", 0) > values.get("timeout", 1e9):
            words = "queue.queue_timeout is over queue.timeout, which counts for waiting and answering together"
            self._tell(places["queue_timeout"], "queue.queue_timeout", words, severity="warning")
        if self._find_model and isinstance(model := values.get("model"), str):
            try:
                self._find_model(model)
            except ColibriError as error:
                self._tell(places["model"], "model", error.message)
