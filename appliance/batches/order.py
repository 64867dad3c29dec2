"""In which order a batch's rows are answered, and which of them are one and the same. Not here: answering.

Rows that share all but their own text (model, task, instruction, examples, schema) come together, so that the shared
beginning is computed once and found in the prefix cache; among them the short before the long, so that rows that run
together end together. Equal rows are one group: the first is computed, the others get its answer; not where the row
asks for chance (a temperature without a seed), since each of those is to be drawn.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from appliance.batches.rows import Ref


@dataclass(frozen=True, slots=True)
class Group:
    """Equal rows in the order of the file, at least one."""

    refs: tuple[Ref, ...]

    @property
    def first(self) -> Ref:
        return self.refs[0]


def ordered(refs: Iterable[Ref]) -> list[Group]:
    """The groups in the order to answer them."""
    equal: dict[bytes, list[Ref]] = {}
    buckets: dict[bytes, int] = {}
    for ref in refs:
        key = ref.custom_id.encode() if ref.is_drawn else ref.digest
        equal.setdefault(key, []).append(ref)
        buckets.setdefault(ref.bucket, len(buckets))
    groups = [Group(tuple(same)) for same in equal.values()]
    return sorted(groups, key=lambda group: (buckets[group.first.bucket], group.first.weight, group.first.line))
