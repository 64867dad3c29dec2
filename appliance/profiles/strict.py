"""YAML text as a tree of words with their places, read strictly. Not here: what a word means, which keys there are.

Keys are kept once, anchors, aliases and tags are refused, nesting and size are bounded, and no word becomes a bool, a
number or a date by its looks: that is the business of who knows the key (values.py). PyYAML's events are walked
directly, so that nothing is built of a hostile file and what stands before a fault can still be checked.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import yaml
from yaml import events

from appliance.profiles.problems import Problem

MOST_BYTES = 64 * 1024
MOST_DEPTH = 4
# A profile has about fifty keys. 64 KiB of "[x,x,x" would take PyYAML over a second.
MOST_VALUES = 1000
MOST_PROBLEMS = 100
# YAML's own rule, and less: NEL, LS and PS end a line for PyYAML and for no editor.
_FORBIDDEN = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_PLAINER = {
    "mapping values are not allowed here": "a second ': ' on one line; put the value in quotes",
    "found character '\\t' that cannot start any token": "a tab stands where a value begins; use spaces",
    "could not find expected ':'": "this line is no 'key: value'",
}


@dataclass(frozen=True, slots=True)
class Place:
    """1-based line and column, and the indexes of the first and the one past the last character."""

    line: int
    col: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    text: str
    is_plain: bool


@dataclass(slots=True)
class Items:
    """A list; `end` is past its closing bracket, 0 where it has none."""

    place: Place
    items: "list[Node]" = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class Group:
    """Keys and values; `end` is past its closing bracket, 0 where it has none."""

    place: Place
    entries: "dict[str, Entry]" = field(default_factory=dict)
    end: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was complained of already."""

    place: Place


TOP_LEFT = Place(1, 1, 0, 0)
Node = Scalar | Items | Group | Refused


@dataclass(frozen=True, slots=True)
class Entry:
    key: Place
    value: Node


@dataclass(frozen=True, slots=True)
class Document:
    """`root` holds what stands before the first fault; `is_whole` says whether that is everything."""

    text: str
    root: Group | None
    problems: list[Problem]
    is_whole: bool


def read(raw: bytes | str) -> Document:
    """Never raises; whatever is wrong is a problem of the document."""
    text, problem = _decoded(raw)
    if problem:
        return Document(text, None, [problem], False)
    reader = _Reader(text)
    is_whole = True
    try:
        reader.read()
    except _Stop:
        is_whole = False
    except yaml.MarkedYAMLError as error:
        is_whole = False
        reader.fault(error)
    except (yaml.YAMLError, ValueError, OverflowError):  # PyYAML asks chr() about "\UFFFFFFFF"
        is_whole = False
        reader.broken()
    return Document(text, reader.root, reader.problems, is_whole)


def _decoded(raw: bytes | str) -> tuple[str, Problem | None]:
    n_bytes = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", "surrogatepass"))
    text = raw if isinstance(raw, str) else raw[:MOST_BYTES].decode("utf-8", "replace")
    if n_bytes > MOST_BYTES:
        words = f"over {MOST_BYTES} bytes; a profile is a page, not a book"
        return text[:MOST_BYTES], Problem(1, 1, "error", "", words)
    if isinstance(raw, bytes):
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return text, Problem(1, 1, "error", "", "this is UTF-16; save the file as UTF-8")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode("utf-8").split("\n")
            latin = raw[error.start : error.start + 1].decode("latin-1")
            words = f"byte 0x{raw[error.start]:02X} is not UTF-8"
            words += f" (it is '{latin}' in Latin-1)" if latin.isprintable() else ""
            where = (len(before), len(before[-1]) + 1)
            return text, Problem(*where, "error", "", f"{words}; save the file as UTF-8")
    text = text.removeprefix("\ufeff")
    if found := _FORBIDDEN.search(text):
        lines = text[: found.start()].split("\n")
        words = f"the character U+{ord(found[0]):04X} is not allowed in a profile; delete it"
        return text, Problem(len(lines), len(lines[-1]) + 1, "error", "", words)
    return text, None


class _Stop(Exception):
    """The rest of the text is not looked at."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.root: Group | None = None
        self.problems: list[Problem] = []
        self._events = yaml.SafeLoader(text)
        self._text = text
        self._n_values = 0

    def tell(self, place: Place, path: str, message: str) -> None:
        self.problems.append(Problem(place.line, place.col, "error", path, message))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _Stop

    def fault(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1, mark.index, mark.index) if mark else TOP_LEFT
        problem = error.problem or str(error).splitlines()[0]
        before = re.split(r"[\r\n]", self._text[: place.start])[-1]
        if "\t" in before + self._text[place.start : place.start + 1] and not before.strip():
            problem = "a tab indents this line; YAML takes spaces only"
        words = _PLAINER.get(problem) or (f"{error.context}, {problem}" if error.context else problem)
        if problem.endswith("that cannot start any token") and problem not in _PLAINER:
            words = "a value cannot begin with this character; put the value in quotes"
        self.problems.append(Problem(place.line, place.col, "error", "", f"not the YAML of a profile: {words}"))

    def broken(self) -> None:
        """An error without a mark: what was read last is at fault."""
        mark = self._events.get_mark()
        words = "not the YAML of a profile: what begins here cannot be read"
        self.problems.append(Problem(mark.line + 1, mark.column + 1, "error", "", words))

    def read(self) -> None:
        self._next()  # the stream's start
        event = self._next()
        if isinstance(event, events.StreamEndEvent):
            self.tell(TOP_LEFT, "", "the file is empty; a profile is a list of 'key: value' lines")
            raise _Stop
        event = self._next()
        place = _at(event)
        if not isinstance(event, events.MappingStartEvent):
            if isinstance(event, events.ScalarEvent) and not event.value:
                place = TOP_LEFT
            self._refuse_extras(event, place, "")
            self.tell(place, "", "a profile is a list of 'key: value' lines, this is something else")
            raise _Stop
        self._refuse_extras(event, place, "")
        self.root = Group(place)
        self._fill(self.root, ())
        self._next()  # the document's end
        event = self._next()
        if isinstance(event, events.DocumentStartEvent):
            place = _at(event)
            self.tell(place, "", "a second document begins here; one file holds one profile")

    def _next(self) -> events.Event:
        event: events.Event = self._events.get_event()  # type: ignore[no-untyped-call]
        return event

    def _fill(self, group: Group, path: tuple[str, ...]) -> None:
        while not isinstance(event := self._next(), events.MappingEndEvent):
            place = _at(event)
            if not isinstance(event, events.ScalarEvent):
                self.tell(place, ".".join(path), "a key must be a plain word")
                self._value(event, (*path, "?"), _nowhere)
                self._value(self._next(), (*path, "?"), _nowhere)
                continue
            key = event.value[:200]
            here = (*path, key)
            self._refuse_extras(event, place, ".".join(here))
            if key in group.entries:
                first = group.entries[key].key.line
                self.tell(place, ".".join(here), f"the key '{'.'.join(here)}' is set twice, first on line {first}")
                self._value(self._next(), here, _nowhere)
                continue

            def put(node: Node, key: str = key, place: Place = place) -> None:
                group.entries[key] = Entry(place, node)

            put(Refused(place))
            self._value(self._next(), here, put)
        group.end = _closed(event)

    def _value(self, event: events.Event, path: tuple[str, ...], put: Callable[[Node], None]) -> None:
        self._n_values += 1
        place = _at(event)
        name = ".".join(path)
        if self._n_values > MOST_VALUES:
            self.tell(place, name, f"more than {MOST_VALUES} values; a profile is a page, not a book")
            raise _Stop
        is_refused = self._refuse_extras(event, place, name)
        if isinstance(event, events.AliasEvent):
            put(Refused(place))
        elif isinstance(event, events.ScalarEvent):
            put(Refused(place) if is_refused else Scalar(place, event.value, not event.style))
        elif len(path) >= MOST_DEPTH:
            self.tell(place, name[:80], f"nested too deeply; a profile has {MOST_DEPTH} levels at most")
            raise _Stop
        elif isinstance(event, events.MappingStartEvent):
            group = Group(place)
            put(Refused(place) if is_refused else group)
            self._fill(group, path)
        else:
            assert isinstance(event, events.SequenceStartEvent)
            items = Items(place)
            put(Refused(place) if is_refused else items)
            while not isinstance(child := self._next(), events.SequenceEndEvent):
                self._value(child, (*path, str(len(items.items))), items.items.append)
            items.end = _closed(child)

    def _refuse_extras(self, event: events.Event, place: Place, path: str) -> bool:
        if isinstance(event, events.AliasEvent) or getattr(event, "anchor", None):
            self.tell(place, path, "anchors and aliases (& and *) are not used in profiles; write the value out")
            return True
        if tag := getattr(event, "tag", None):
            words = "'!' begins a tag; tags are" if tag == "!" else f"the tag {tag[:80]} is"
            self.tell(place, path, f"{words} not used in profiles; write the value alone")
            return True
        return False


def _at(event: events.Event) -> Place:
    start, end = event.start_mark, event.end_mark
    assert start and end
    return Place(start.line + 1, start.column + 1, start.index, end.index)


def _closed(event: events.Event) -> int:
    """Past the bracket that ends a flow list or mapping; a block has no sign of its end."""
    place = _at(event)
    return place.end if place.end > place.start else 0


def _nowhere(node: Node) -> None:
    """What is refused is read to its end, and kept nowhere."""
