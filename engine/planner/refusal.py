"""What to say of a load that cannot fit: how much is missing and the smallest change that would fit. Not here: judging.

The load mode goes first, since it costs no answer; then a cache of experts that was asked for; then the context, the
cache's types, the sequences.
"""

from engine.budget import MIB, mib
from engine.cache.layout import KV_TYPES, PAGE
from engine.gguf.layout import quoted
from engine.planner.needs import Needs


def refusal(needs: Needs, mode: str, n_ctx: int, budget: int, last_mode: str) -> str:
    """One sentence; `last_mode` is the load mode that needs least."""
    needed = f"{quoted(needs.facts.name, 120)} with {n_ctx:,} positions needs {mib(needs.least(mode, n_ctx))}"
    change = _smallest_change(needs, mode, n_ctx, budget, last_mode)
    return f"{needed} ({needs.sum_of(mode)}), but {budget // MIB:,} MiB are available; {change}"


def _smallest_change(needs: Needs, mode: str, n_ctx: int, budget: int, last_mode: str) -> str:
    if mode != last_mode and needs.least(last_mode, n_ctx) <= budget:
        return f"--load-mode {last_mode} would fit"
    if less := _smaller_cache(needs, mode, n_ctx, budget):
        return f"{less} would fit"
    other = "" if mode == last_mode else f" with --load-mode {last_mode}"
    changes = []
    if most := needs.most_context(last_mode, budget):
        changes.append(f"--ctx-size {min(most, n_ctx)}{other}")
    if kv_type := _smaller_type(needs, last_mode, n_ctx, budget):
        changes.append(f"--cache-type-k {kv_type} --cache-type-v {kv_type}{other}")
    if 0 < (fewer := _most_parallel(needs, last_mode, n_ctx, budget)) < needs.request.parallel:
        changes.append(f"--parallel {fewer}{other}")
    if changes:
        return " or ".join(changes) + " would fit"
    return f"even --ctx-size {PAGE}{other} needs {mib(needs.least(last_mode, PAGE))}"


def _smaller_cache(needs: Needs, mode: str, n_ctx: int, budget: int) -> str:
    """The largest cache of experts with which it fits, where a larger one was asked for."""
    asked, experts = needs.request.expert_cache, needs.facts.experts
    if not asked or experts is None or needs.but(expert_cache=0).least(mode, n_ctx) > budget:
        return ""
    return f"--cache-mb {max(0, min(asked, experts.n_bytes) - (needs.least(mode, n_ctx) - budget)) // MIB}"


def _smaller_type(needs: Needs, mode: str, n_ctx: int, budget: int) -> str:
    """The cache type that loses least among those with which it fits; "" for none."""
    for kv_type in ("q8_0", "q4_0"):
        small = needs.but(type_k=kv_type, type_v=kv_type)
        dims, multiple = (needs.shape.head_dim, needs.shape.v_dim), KV_TYPES[kv_type][1]
        is_possible = all(dim % multiple == 0 for dim in dims) and small.kv(n_ctx) < needs.kv(n_ctx)
        if is_possible and small.least(mode, n_ctx) <= budget:
            return kv_type
    return ""


def _most_parallel(needs: Needs, mode: str, n_ctx: int, budget: int) -> int:
    room = budget - needs.least(mode, n_ctx) + needs.kv(n_ctx)
    return max(0, room) // needs.but(parallel=1).kv(n_ctx)
