"""Records a mixture of experts: router, choice, the chosen experts. Not here: attention, norms (parts.py), the loops.

All layers share the buffers. Every extent that an op touches is asserted here, once, at load. A cache of experts is
asked behind `group` and, where it is small, once more for each further wave of experts; a step leaves out the waves
that it does not need.
"""

from collections.abc import Sequence

import numpy as np

from engine.kernels import experts, route
from engine.kernels.act import act_bytes
from engine.kernels.curves import CLAMPED, SILU
from engine.kernels.fetch import fetch
from engine.kernels.places import DOWN, GATE, UP, Places
from engine.kernels.program import Buffer, Work
from engine.models.ffn import ExpertLayer
from engine.models.parts import CHUNK, Act, Parts
from engine.weights.experts import ExpertCache
from engine.weights.tensor import ExpertMatrix


class Mixture:
    """Buffers for steps of `parts`, n_used experts a row; `record` adds the ops of one layer. With a `cache` the
    experts lie in its slots, else where their matrices are placed."""

    def __init__(
        self, parts: Parts, places: Places, layers: Sequence[ExpertLayer], n_used: int, cache: ExpertCache | None = None
    ) -> None:
        self.parts, self.places, self.n_used, self.cache = parts, places, n_used, cache
        self.layers = list(layers)
        self.n_experts, self.n_ff = layers[0].gate.count, layers[0].gate.n
        n_slots, rows, n_embd = parts.max_rows * n_used, parts.max_rows, parts.shape.n_embd
        assert 0 < n_used <= self.n_experts == places.n_experts, (n_used, self.n_experts, places.n_experts)
        self.is_plain = all(w.routing.is_plain and w.favour is None for w in layers)
        groups = max(w.routing.n_groups for w in layers)
        self.ld_scores = -(-(self.n_experts if self.is_plain else 2 * self.n_experts + groups) // 8) * 8
        self.scores = parts.keep(Buffer(rows * self.ld_scores * 4))
        self.chosen = parts.keep(Buffer(n_slots * route.SLOT))
        self.needed = parts.keep(Buffer(route.needed_bytes(self.n_experts)))
        # What the experts' ops go by: of a wave, or of all at once.
        self.wave = parts.keep(Buffer(route.needed_bytes(self.n_experts))) if cache else self.needed
        self.order = parts.keep(Buffer(2 * self.n_experts * 8)) if cache else None
        self.slots = parts.keep(Buffer(n_slots * route.SLOT))
        self.counts = parts.keep(Buffer(self.n_experts * 8))
        self.hidden = parts.keep(Buffer(n_slots * self.n_ff * 4))
        formats = {w.down.whole.act for w in layers}
        of_format = {f: parts.keep(Buffer(act_bytes(f, self.n_ff, n_slots))) for f in sorted(formats)}
        self.act = Act(self.n_ff, 0, of_format.get("f32"), of_format.get("q32"))
        self.scratch_bytes = -(-max(_scratch(w, n_embd, self.n_ff) for w in layers) // 64) * 64
        self.scratch = parts.keep(Buffer(self.scratch_bytes * parts.threads))

    def record(self, w: ExpertLayer, act: Act) -> None:
        """x += sum of weight * (down(silu(gate act) * (up act))) over a row's experts; `act` holds the normed x."""
        layer = self.layers.index(w)
        parts, program, n_embd = self.parts, self.parts.program, self.parts.shape.n_embd
        for m, k, n in ((w.gate, n_embd, self.n_ff), (w.up, n_embd, self.n_ff), (w.down, self.n_ff, n_embd)):
            assert (m.whole.k, m.n, m.count) == (k, n, self.n_experts) and m.n % 8 == 0, (m.whole.name, k, n)
        assert parts.x.n_bytes >= parts.max_rows * n_embd * 4 and act.k == n_embd, (act.k, n_embd)
        parts.matmul(w.router, act, self.scores, self.ld_scores, bias=w.router_bias)
        program.barrier()
        self._choose(w)
        program.tile_barrier()
        program.add(
            route.group, self.chosen.address, self.n_experts, self.n_used, self.needed.address, self.slots.address,
            self.counts.address,
        )  # fmt: skip
        if self.cache is None:
            self._fill(layer, w)
            program.barrier()
            self._halves(layer, w, act)
            return
        self._fetch(self.cache, layer, 0)
        program.barrier()
        self._halves(layer, w, act)
        most = min(self.n_experts, parts.max_rows * self.n_used)
        for wave in range(1, self.cache.most_waves(layer, most)):
            with program.only_above(self.cache.waves_at, wave):
                program.barrier()
                self._fetch(self.cache, layer, wave)
                program.barrier()
                self._halves(layer, w, act)

    def _choose(self, w: ExpertLayer) -> None:
        r, add = w.routing, self.parts.program.add
        words = self.scores.address, self.ld_scores, self.n_experts, self.n_used, self.chosen.address, int(r.is_share)
        if self.is_plain:
            add(route.choose, *words, counter=True)
            return
        assert w.favour is None or (w.favour.k == self.n_experts and r.is_sigmoid), w.favour
        assert r.n_groups == 1 or self.n_experts // r.n_groups >= r.group_best, r
        add(
            route.elect, *words, route.SIGMOID if r.is_sigmoid else route.SOFTMAX, w.favour.address if w.favour else 0,
            r.n_groups, r.groups_used, r.group_best, float(r.factor), counter=True,
        )  # fmt: skip

    def _fill(self, layer: int, w: ExpertLayer) -> None:
        for part, m in ((GATE, w.gate), (UP, w.up), (DOWN, w.down)):
            if m.whole.is_scattered:
                self.places.scatter(layer, part, np.array(m.whole.parts, np.int64))
            else:
                self.places.fill(layer, part, m.whole.address, m.n_bytes)

    def _fetch(self, cache: ExpertCache, layer: int, wave: int) -> None:
        assert self.order is not None
        self.parts.program.add(
            fetch, cache.address, cache.layer(layer), self.needed.address, self.wave.address, self.order.address, wave
        )

    def _halves(self, layer: int, w: ExpertLayer, act: Act) -> None:
        self._first_half(layer, w, act)
        self.parts.program.barrier()
        self.parts.program.add(
            experts.slot_acts, self.wave.address, self.hidden.address, self.n_ff, *self.act.addresses,
            self.scratch.address, self.scratch_bytes, counter=True,
        )  # fmt: skip
        self.parts.program.barrier()
        self._second_half(layer, w)

    def _first_half(self, layer: int, w: ExpertLayer, act: Act) -> None:
        gate, up = w.gate.whole, w.up.whole
        marked = [act.of(m) | (m.act == "q32") for m in (gate, up)]
        biases = (w.biases[0].address, w.biases[1].address) if w.biases else (0, 0)
        assert w.biases is None or all(b.k == m.count * m.n for b, m in zip(w.biases, w.parts, strict=True)), w.biases
        block = self.parts.keep(experts.layer_block(gate.k, *biases, CLAMPED if w.limit else SILU, w.limit))
        self.parts.program.add(
            experts.gate_up, self.wave.address, self.slots.address, self.places.layer(layer),
            gate.body, marked[0], gate.blocks, up.body, marked[1], up.blocks, block.address, self.n_ff,
            self.hidden.address, self.scratch.address, self.scratch_bytes, counter=True,
            work=self._work(w.gate, w.up),
        )  # fmt: skip

    def _second_half(self, layer: int, w: ExpertLayer) -> None:
        down = w.down.whole
        self.parts.program.add(
            experts.down, self.wave.address, self.slots.address, self.places.layer(layer), down.body,
            self.act.of(down), down.blocks, w.down.n, self.parts.x.address, CHUNK // down.panel_bytes,
            self.scratch.address, self.scratch_bytes, w.biases[2].address if w.biases else 0, counter=True,
            work=self._work(w.down),
        )  # fmt: skip

    def _work(self, *matrices: ExpertMatrix) -> Work:
        """Bytes as if no two rows shared an expert: exact for one row."""
        return Work(
            "+".join(m.whole.name for m in matrices), row_bytes=self.n_used * sum(m.n_bytes for m in matrices),
            row_macs=self.n_used * sum(m.n * m.whole.k for m in matrices),
        )


def _scratch(w: ExpertLayer, n_embd: int, n_ff: int) -> int:
    """The most any op needs for one thread."""
    widest = max(m.whole.panel_bytes for m in (w.gate, w.up, w.down))
    return max(4 * n_ff, experts.scratch_bytes(widest, (w.gate.whole.act, w.up.whole.act), n_embd))
