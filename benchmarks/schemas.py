"""Random JSON schemas and expressions through a real engine: every answer must fit, what cannot be kept to is refused.

    python -m benchmarks.schemas [MODEL.gguf] [--schemas 200] [--patterns 50] [--seed 0]

The judge is `jsonschema` (formats too) for schemas and `re` for expressions. Schemas nest to depth 4 and have objects
with required, optional, further and pattern-named members, arrays and tuples, strings with lengths, patterns and
formats, numbers with open and closed borders and multiples, enum, const, anyOf, allOf, oneOf, $ref (recursive too).
Then every keyword that the grammar does not keep to is put at a random place of as many schemas: each must be refused
with that place. Prints a line for each failure and a summary; exit code 1 when there was one.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema

from appliance.api.structured import Constrained, InvalidSchema, grammar_of
from engine.budget import Machine
from engine.constrain import Grammars
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.text import Text, open_text

Schema = dict[str, Any]
MOST_DRAWS = 5
# A leap second and the year 0 are times by RFC 3339, not to the judge. (Nor does it know the newest digits of Unicode,
# all of which \d means to the grammar.)
LEAP, YEAR_0 = re.compile(r"(\d\d:\d\d):60"), re.compile(r'"0000-')
NAMES = ("a", "b", "name", "größe", "x y", 'q"', "tags", "")
PATTERNS = ("^[a-z]{2,4}$", "^(ab|cd)+x$", "^[0-9]{3}-[A-F]$", "^\\d{2}:\\d{2}$", "^é?[^a]{1,2}$", "^[a-z_]+$")
FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "duration")
VALUES = (1, -2.5, 0, "a", "b c", 'é "q"\n', None, True, False, [1, "x"], {"k": [None]}, "", 10**12)
# What the grammar cannot keep to, as the members of a schema that say it.
REFUSED: tuple[Schema, ...] = (
    {"contains": {"type": "null"}}, {"uniqueItems": True}, {"not": {"type": "string"}}, {"if": {}, "then": False},
    {"dependentRequired": {"a": ["b"]}}, {"propertyNames": {"maxLength": 3}}, {"unevaluatedProperties": False},
    {"dependentSchemas": {"a": {}}}, {"$dynamicRef": "#x"}, {"$ref": "#/nowhere"}, {"type": "string", "format": "song"},
    {"type": "string", "pattern": "(?=a)b"}, {"type": "string", "pattern": "(a)\\1"}, {"type": "objekt"},
    {"oneOf": [{"type": "number"}, {"type": "integer"}]}, {"$ref": "#/$defs/circle"},
    {"type": "number", "minimum": 1e999}, {"enum": ["\ud800"]},
)  # fmt: skip
ATOMS = ("[a-c]", "[0-9]{1,3}", "(x|yz)", "[^\\n]{2}", "é?", "-", "(ab){2}", "\\.", "[A-Z][a-z]", "[0-9]", "\\s", "a+b",
         "(?:u|v|)", "[a-z.]{1,4}", "\\{\\}", "z{0,2}")  # fmt: skip


def some_schema(rng: random.Random, depth: int = 0) -> Schema:
    """A schema whose texts are short; the outermost is an object or an array and has the definitions."""
    if depth == 0:
        made = rng.choice((_object, _object, _array))(rng, 1)
        tree = {
            "type": "object", "required": ["v"], "additionalProperties": False,
            "properties": {"v": _integer(rng, 4), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
        }  # fmt: skip
        definitions = {"short": {"type": "string", "maxLength": 3}, "pair": _tuple(rng, 9), "tree": tree}
        return {**made, "$defs": definitions}
    leaves = (_string, _pattern, _format, _integer, _number, _enum, _const, _plain, _ref)
    inner = (_object, _array, _tuple, _any_of, _all_of, _one_of)
    return rng.choice(leaves if depth > 3 or rng.random() < 0.55 else inner)(rng, depth + 1)


def _string(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 5)}


def _pattern(rng: random.Random, depth: int) -> Schema:
    return {"type": "string", "pattern": rng.choice(PATTERNS), "maxLength": 9}


def _format(rng: random.Random, depth: int) -> Schema:
    return {"type": "string", "format": rng.choice(FORMATS)}


def _integer(rng: random.Random, depth: int) -> Schema:
    made: Schema = {"type": "integer", rng.choice(("minimum", "exclusiveMinimum")): rng.randint(-500, 0)}
    made |= {rng.choice(("maximum", "exclusiveMaximum")): rng.randint(10, 90_000)}
    return made | ({"multipleOf": rng.choice((2, 3, 5, 10))} if rng.random() < 0.3 else {})


def _number(rng: random.Random, depth: int) -> Schema:
    made: Schema = {"type": "number"}
    if rng.random() < 0.8:
        made |= {rng.choice(("minimum", "exclusiveMinimum")): rng.choice((-1.5, 0, -20, 0.125))}
        made |= {rng.choice(("maximum", "exclusiveMaximum")): rng.choice((2.25, 1, 1000.5))}
    return made


def _enum(rng: random.Random, depth: int) -> Schema:
    return {"enum": rng.sample(VALUES, k=rng.randint(1, 5))}


def _const(rng: random.Random, depth: int) -> Schema:
    return {"const": rng.choice(VALUES)}


def _plain(rng: random.Random, depth: int) -> Schema:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _ref(rng: random.Random, depth: int) -> Schema:
    return {"$ref": "#/$defs/" + rng.choice(("short", "pair", "tree"))}


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(NAMES, k=rng.randint(1, 5))
    made: Schema = {
        "type": "object", "properties": {name: some_schema(rng, depth) for name in names},
        "required": rng.sample(names, k=rng.randint(0, len(names))), "additionalProperties": False,
    }  # fmt: skip
    if rng.random() < 0.15:
        made["patternProperties"] = {"^p[0-9]$": _integer(rng, depth)}
    return made


def _array(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 2)
    return {"type": "array", "items": some_schema(rng, depth), "minItems": least, "maxItems": least + rng.randint(0, 2)}


def _tuple(rng: random.Random, depth: int) -> Schema:
    kinds = (_string, _pattern, _format, _integer, _number, _enum, _const, _plain, _ref, _array)
    some = kinds[:8] if depth > 8 else kinds  # a definition refers to no other
    places = [rng.choice(some)(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    return {"type": "array", "prefixItems": places, "minItems": len(places), "items": False}


def _any_of(rng: random.Random, depth: int) -> Schema:
    return {"anyOf": [some_schema(rng, depth) for _ in range(rng.randint(1, 3))]}


def _all_of(rng: random.Random, depth: int) -> Schema:
    return {"allOf": [{"type": "integer", "minimum": rng.randint(-9, 5)}, {"maximum": rng.randint(6, 99)}]}


def _one_of(rng: random.Random, depth: int) -> Schema:
    return {"oneOf": [_string(rng, depth), {"type": "null"}, _integer(rng, depth)]}


def places(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """The schemas that stand in one, itself first, with where; definitions are left out."""
    yield path, schema
    for word in ("properties", "patternProperties"):
        for name, part in schema.get(word, {}).items():
            yield from places(part, f"{path}.{word}.{name}")
    for word in ("anyOf", "prefixItems"):
        for i, part in enumerate(schema.get(word, [])):
            yield from places(part, f"{path}.{word}.{i}")
    if isinstance(schema.get("items"), dict):
        yield from places(schema["items"], f"{path}.items")


@dataclass
class Drawn:
    """One engine that answers from a text of noise, and what came of it."""

    engine: Engine
    text: Text
    failures: list[str] = field(default_factory=list)
    n_tokens: int = 0
    n_cut: int = 0

    def answer(self, grammar: str, seed: int) -> str:
        """An answer drawn hot from a prompt of the seed's own. One that the context cuts says so and is drawn again:
        a model of noise writes the digits of a fraction for as long as it may."""
        for again in range(MOST_DRAWS):
            if (text := self._answer(grammar, seed + 10_000 * again)) is not None:
                return text
            self.n_cut += 1
        raise TimeoutError(f"did not end in any of {MOST_DRAWS} draws")

    def _answer(self, grammar: str, seed: int) -> str | None:
        rng = random.Random(seed)
        prompt = [rng.randrange(5, self.text.vocab.n_vocab) for _ in range(3)]
        # Half of them close to uniform: whatever the grammar allows is come upon.
        how = Sampling(temperature=rng.choice((0.9, 5.0)), top_k=0, top_p=1.0, min_p=0.0, seed=seed, grammar=grammar)
        eog = self.text.vocab.eog_ids
        seq = self.engine.open(prompt, how, self.engine.info.n_ctx, eog)
        ids: list[int] = []
        try:
            while seq.finish is None:
                out = self.engine.step(seq)
                ids += [one.token for one in (out, *out.more) if one.token is not None]
            if seq.failure is not None:
                raise seq.failure
        finally:
            self.engine.close(seq)
            self.n_tokens += len(ids)
        return None if seq.finish == "length" else self.text.decode([i for i in ids if i not in eog])

    def judged(self, name: str, wanted: Any, act: Callable[[], None]) -> None:
        """Note what `act` raises, with what was asked."""
        try:
            act()
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self.failures.append(f"{name}: {said}: {json.dumps(wanted, ensure_ascii=False)[:600]}")


def fits(drawn: Drawn, seed: int) -> None:
    """One schema: its answer is valid JSON that `jsonschema` takes."""
    schema = some_schema(random.Random(seed))

    def act() -> None:
        text = drawn.answer(grammar_of(Constrained(json_schema=schema)), seed)
        text = YEAR_0.sub('"0004-', LEAP.sub(r"\1:59", text))
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))

    drawn.judged(f"schema {seed}", schema, act)


def matches(drawn: Drawn, seed: int) -> None:
    """One expression: its answer matches from end to end."""
    rng = random.Random(seed)
    pattern = "".join(rng.choices(ATOMS, k=rng.randint(1, 7)))

    def act() -> None:
        text = drawn.answer(grammar_of(Constrained(guided_regex=pattern)), seed)
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} does not match")

    drawn.judged(f"expression {seed}", pattern, act)


def refused(drawn: Drawn, seed: int) -> None:
    """One schema with something at a random place that cannot be kept to: refused, and with that place."""
    rng = random.Random(seed)
    schema = some_schema(rng)
    path, part = rng.choice(list(places(schema)))
    circle = {"circle": {"type": "array", "items": {"$ref": "#/$defs/circle"}, "minItems": 1}}
    schema["$defs"] |= circle
    kept = {"$defs": part["$defs"]} if "$defs" in part else {}
    part.clear()
    part |= kept | rng.choice(REFUSED)

    def act() -> None:
        try:
            grammar_of(Constrained(json_schema=schema))
        except InvalidSchema as error:
            # The whole refers to what is at fault, then: the definition is named.
            if path and error.param != f"json_schema{path}":
                raise ValueError(f"refused at {error.param}, it is at json_schema{path}") from error
            return
        raise ValueError(f"what is at json_schema{path} was taken")

    drawn.judged(f"refusal {seed}", schema, act)


def run(drawn: Drawn, n_schemas: int, n_patterns: int, seed: int = 0) -> list[str]:
    """So many of each, half as many refusals; the failures."""
    for i in range(seed, seed + n_schemas):
        fits(drawn, i)
    for i in range(seed, seed + n_patterns):
        matches(drawn, i)
    for i in range(seed, seed + n_schemas // 2):
        refused(drawn, i)
    return drawn.failures


def opened(path: Path) -> Drawn:
    """An engine of a file, with its words."""
    options = EngineOptions(n_ctx=2048, threads=1, threads_batch=1)
    engine = load_engine(path, options, Machine(1 << 34, None, 2, (0, 1), None))
    text = open_text(read_gguf(path))
    engine.grammars = Grammars(text.vocab, partial(text.encode, add_special=False, parse_special=False))
    return Drawn(engine, text)


def main() -> int:
    """Run as a script; 0 when everything fits."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; without one a tiny model of noise")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--patterns", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from tests.tiny import tiny_llama

        drawn = opened(args.model or tiny_llama(Path(folder) / "tiny.gguf", n_ctx=2048))
        failures = run(drawn, args.schemas, args.patterns, args.seed)
        drawn.engine.shutdown()
    print("\n".join(failures), file=sys.stderr)
    print(f"{args.schemas} schemas, {args.patterns} expressions, {args.schemas // 2} refusals over {drawn.n_tokens:,} "
          f"tokens, {drawn.n_cut} answers cut: {len(failures)} failures")  # fmt: skip
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
