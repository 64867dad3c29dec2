"""How fast a planned model will answer, and what limits it. Not here: measuring (appliance/machine), what is planned.

    seconds of a step = max(bytes from disk / (disk x share),  bytes from RAM / memory + further rows + attention)

A step moves each of the sequences one token on; the weights are read once for all of them.
"""

from pathlib import Path
from typing import NamedTuple

from engine.budget import Machine
from engine.footprint import ModelFacts, attention_macs
from engine.planner.residency import Residency, least_slots
from engine.weights.heat import Heat, chances, heat_path, kept_heat

# Of plain reading's speed, what decoding reaches on two cores: 0.75 at 2 bits per weight, 0.87 at 5, 0.96 at 8.
LEAST_READ_SHARE, READ_SHARE_PER_BIT, MOST_READ_SHARE = 0.72, 0.03, 0.96
# Barriers and small ops of one layer: what a 135M model takes beyond its bytes, 0.9 ms in 30 layers.
LAYER_S = 30e-6
# Multiplications per second and thread, AVX-512: of weights with rows beyond the first (178e9 of Q4_K, less of others),
# and of queries with keys and of weights with values, in the time that reading the weights does not hide: 28e9 for
# 4,096 positions in q8_0, 31e9 for 8 x 1,024 in q4_0.
ROW_MACS, ATTENTION_MACS = 125e9, 30e9
# Of what the disk gives to readers alone, what a stream gets beside its computing: 0.83 to 1.06 in twelve quiet runs.
DISK_SHARE = 0.93


class Forecast(NamedTuple):
    """Bytes are of the weights, per step; `bound` is disk, memory or compute."""

    tok_s: float
    bound: str
    ram_bytes: int
    disk_bytes: int


def forecast(
    facts: ModelFacts, machine: Machine, threads: int, n_seqs: int, mode: str, where: Residency, is_paging: bool,
    depth: int = 0, kv_bytes: int = 0, heat: Heat | None = None,
) -> Forecast:  # fmt: skip
    """`is_paging`: mapped weights do not fit beside the rest; `depth` positions and `kv_bytes` are what each sequence
    has in its cache; `heat`: how much each expert is used."""
    ram = facts.dense_bytes + facts.weights["norms"] + routed(facts, n_seqs)
    disk = disk_bytes(facts, n_seqs, mode, where, is_paging, heat)
    reading_s = (ram + n_seqs * kv_bytes) / (machine.memory_rate.bytes_s * read_share(facts))
    reading_s += facts.shape.n_layers * LAYER_S
    rows_s = (n_seqs - 1) * facts.macs / (ROW_MACS * threads)
    rows_s += n_seqs * attention_macs(facts.shape, depth) / (ATTENTION_MACS * threads)
    disk_s = disk / (machine.disk_rate.bytes_s * DISK_SHARE)
    step_s = max(disk_s, reading_s + rows_s)
    bound = "disk" if disk_s == step_s else "memory" if reading_s >= rows_s else "compute"
    return Forecast(n_seqs / step_s, bound, ram, disk)


def disk_bytes(
    facts: ModelFacts, n_seqs: int, mode: str, where: Residency, is_paging: bool, heat: Heat | None = None
) -> int:
    """What a step reads from disk. A map that does not fit hits nothing, since the pages that come next are those that
    went longest ago, and drags in neighbours of what it needs: 4.3 of 4.5 GiB per token were measured where a token
    uses 0.5."""
    if mode == "stream":
        return where.stream_per_token + routed(facts, n_seqs, where.expert_cache, heat)
    if mode == "mmap" and is_paging:
        return facts.dense_bytes + facts.weights["experts"]
    return 0


def heat_of(facts: ModelFacts, folder: Path) -> Heat | None:
    """What earlier runs have left in the folder of heat files, None where there is nothing of this model."""
    if (experts := facts.experts) is None:
        return None
    return kept_heat(heat_path(folder, facts.digest), experts.n_layers, experts.n, facts.digest)


def read_share(facts: ModelFacts) -> float:
    """The fewer bits a weight has, the more there is to compute for each byte."""
    bits = 8 * (facts.dense_bytes + routed(facts, 1)) / max(1, facts.macs)
    return min(MOST_READ_SHARE, LEAST_READ_SHARE + READ_SHARE_PER_BIT * bits)


def routed(facts: ModelFacts, n_seqs: int, expert_cache: int = 0, heat: Heat | None = None) -> int:
    """Bytes of the different experts that a step of so many sequences uses and that a cache of so many bytes has not.

    Of experts used evenly it has its share, or none where it is less than one token uses: before one comes again it has
    gone. Else it has the hottest, also in the slots that are there without a cache: one that forgets what is used least
    of late comes to that.
    """
    experts = facts.experts
    if experts is None:
        return 0
    if heat is None:
        cached = expert_cache if expert_cache >= experts.cycle_bytes else 0
        used = 1 - (1 - experts.n_used / experts.n) ** n_seqs
        return round(experts.n_bytes * used * (1 - min(1.0, cached / experts.n_bytes)))
    each = experts.n_bytes / (experts.n * experts.n_layers)
    n_cached = int((expert_cache + least_slots(experts)) / each) if expert_cache else 0
    by_use = sorted((chance for row in chances(heat, experts.n_used) for chance in row), reverse=True)
    return round(each * sum(1 - (1 - chance) ** n_seqs for chance in by_use[n_cached:]))
