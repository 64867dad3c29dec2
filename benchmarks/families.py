"""Measures each family's tiny model against transformers and against llama.cpp, and writes docs/models.md.

    python -m benchmarks.families [NAME ...]      NAMEs are measured anew, other rows stay as they are in the record

Float32: the largest difference to transformers' stored logits, as a share of their standard deviation. Quantised: texts
of 200 random ids, teacher-forced; how often the likeliest next token is that of float32, and the mean KL divergence
from it, of ours and of llama.cpp on the same file. One text is too few: where two experts are nearly tied rounding
chooses, and the mean over 200 positions differs between texts by a factor of four; over eight texts of a mixture the
ratio of the two still strays by a quarter.
Not here: the table of families (tests/families), asking transformers.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.machine.host import read_machine
from benchmarks import llamacpp, ours
from benchmarks.divergence import log_softmax
from benchmarks.peer_logits import peer_log_probs
from engine.load import EngineOptions, load_engine
from engine.models.registry import ARCHITECTURES
from tests.families import FAMILIES
from tests.families.family import F32
from tests.families.stored import ids_of, load, question, write

RESULTS = Path(__file__).parent / "results" / "families.json"
PAGE = Path(__file__).parent.parent / "docs" / "models.md"
QUANTS = ("Q8_0", "Q4_0")
N_TEXTS, N_TEXTS_MIXTURE, N_FORCED = 8, 32, 200
# Of a KL divergence between log-probabilities in float32.
ROUNDING = 1e-6
# Rows; nothing in a checkpoint says that some layers are not rotated.
UNTURNED = ("smollm3", "cohere2", "exaone4")
_HEAD = """# Model families

Made by `python -m benchmarks.families`; do not edit. Each row is a tiny random model of the real architecture
(`tests/families`). **transformers**: largest difference of our float32 logits to transformers' over all 72 positions,
as a share of the logits' standard deviation (0.001 is allowed), a prompt read at once / token by token. **top-1** and
**KL**: a quantised version against float32 on so many teacher-forced positions, ours / llama.cpp's. Random weights
leave many near ties, so the pairs count, not the numbers; `-`: llama.cpp does not compute that model (or not fully).

"""


def logits(path: Path, texts: Sequence[list[int]], rows: int = 512, kv: str = "f32") -> list[F32]:
    """Our logits after each id of each text, `rows` of them read at once."""
    options = EngineOptions(n_ctx=256, ubatch_size=rows, type_k=kv, type_v=kv, load_mode="resident")
    engine = load_engine(path, options, read_machine())
    try:
        return [np.array(list(engine.logit_rows(ids))) for ids in texts]
    finally:
        engine.shutdown()


def against(exact: NDArray[np.float64], found: NDArray[np.float64]) -> dict[str, float]:
    """Share of positions with the exact first choice, and mean KL(exact || found) in nats; both log-probabilities."""
    kl = (np.exp(exact) * (exact - found)).sum(axis=1)
    return {"top1": float((exact.argmax(axis=1) == found.argmax(axis=1)).mean()), "kl": float(kl.mean())}


def measure(name: str, folder: Path) -> dict[str, Any]:
    """All numbers of one row."""
    family, path = FAMILIES[name], folder / "m.gguf"
    truth = write(name, path)
    apart = [truth.apart(logits(path, [ids_of()], n)[0]) for n in (128, 1)]
    n_texts = N_TEXTS_MIXTURE if _experts(family.whole_config) else N_TEXTS
    forced = [ids_of(N_FORCED, seed) for seed in range(8, 8 + n_texts)]
    exact = log_softmax(np.concatenate(logits(path, forced)))
    found: dict[str, Any] = {"transformers": apart, "positions": n_texts * N_FORCED}
    for quant in QUANTS:
        write(name, path, quant, for_peer=family.peer)
        found[quant] = {"ours": against(exact, log_softmax(np.concatenate(logits(path, forced, kv="f16"))))}
        if family.peer:
            said = list(peer_log_probs([question(path, ids) for ids in forced]))
            found[quant]["peer"] = against(exact, np.concatenate(said))
    return found


def misses(found: Mapping[str, Any]) -> list[str]:
    """What of a row's numbers is not as it should be."""
    told = [] if max(found["transformers"]) <= 1e-3 else [f"{max(found['transformers']):.1e} from transformers"]
    for quant in QUANTS:
        ours, peer = found[quant]["ours"], found[quant].get("peer")
        if peer and ours["top1"] < peer["top1"] - 0.02:
            told.append(f"{quant} top-1 {ours['top1']:.3f} where llama.cpp has {peer['top1']:.3f}")
        if peer and ours["kl"] > 1.2 * peer["kl"] + ROUNDING:
            told.append(f"{quant} KL {ours['kl']:.5f} where llama.cpp has {peer['kl']:.5f}")
    return told


def page(found: Mapping[str, Any]) -> str:
    """docs/models.md."""
    titles = ["model", "general.architecture", "what is in it", "transformers", "positions"]
    titles += [f"{quant} {what}" for quant in QUANTS for what in ("top-1", "KL")]
    lines = [" | ".join(titles), " | ".join(["---"] * len(titles))]
    lines += [" | ".join(_row(name, found[name])) for name in FAMILIES if name in found]
    return _HEAD + "\n".join(f"| {line} |" for line in lines) + "\n"


def _row(name: str, found: Mapping[str, Any]) -> list[str]:
    apart = " / ".join(f"{d:.1e}" for d in found["transformers"])
    cells = [name, f"`{FAMILIES[name].arch}`", ", ".join(features(name)) or "-", apart, str(found["positions"])]
    for quant in QUANTS:
        both = [found[quant].get(who) for who in ("ours", "peer")]
        cells.append(" / ".join(f"{100 * one['top1']:.1f} %" if one else "-" for one in both))
        cells.append(" / ".join(f"{max(one['kl'], 0):.3g}" if one else "-" for one in both))
    return cells


def features(name: str) -> list[str]:
    """What sets the row apart from a plain decoder, read off its configuration and the tensors of its checkpoint."""
    family, shapes = FAMILIES[name], load(name).shapes
    c = family.whole_config
    rope = c["rope_parameters"].get("full_attention", c["rope_parameters"])
    of_layer = {t.split(".", 3)[3]: shape for t, shape in shapes.items() if t.startswith("model.layers.1.")}
    experts = _experts(c)
    told = [
        (rope["rope_type"] != "default", f"rope {rope['rope_type']}"),
        ("partial_rotary_factor" in rope, "part of a head rotated"),
        (name in UNTURNED, "some layers without rope"),
        (bool(c.get("sliding_window")), "sliding window"),
        ("attn_logit_softcapping" in c, "soft caps"),
        ("kv_lora_rank" in c, "latent attention"),
        ("self_attn.sinks" in of_layer, "sinks"),
        ("self_attn.q_norm.weight" in of_layer, f"norms of {'whole rows' if _is_whole(of_layer) else 'heads'}"),
        (any(key in c for key in ("norm_epsilon", "layer_norm_eps")), "LayerNorm"),
        ("post_ffw_norm" in family.names.values(), "norms behind"),
        (not any("post_" in t for t in of_layer), "attention and feed-forward side by side"),
        (any(t.endswith("proj.bias") for t in of_layer), "biases"),
        ("embedding_multiplier" in c, "multipliers"),
        (family.ternary, "ternary, norms within"),
        (bool(experts), f"{c.get('num_experts_per_tok')} of {experts} experts"),
        (any("shared" in t for t in of_layer), "shared expert"),
        (c.get("n_group", 1) > 1, f"{c.get('topk_group')} of {c.get('n_group')} groups"),
        ("lm_head.weight" not in shapes, "tied"),
    ]  # fmt: skip
    return [word for holds, word in told if holds]


def _is_whole(of_layer: Mapping[str, tuple[int, ...]]) -> bool:
    """One norm for a whole query, not one for each head."""
    norm, query = (of_layer.get(f"self_attn.{part}.weight", (0,)) for part in ("q_norm", "q_proj"))
    return norm[-1] == query[0]


def _experts(config: Mapping[str, Any]) -> int:
    return int(next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if k in config), 0))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the families' tiny models and write docs/models.md.")
    parser.add_argument("names", nargs="*", help=f"rows (all): {', '.join(FAMILIES)}")
    names = parser.parse_args().names or [name for name, family in FAMILIES.items() if family.arch in ARCHITECTURES]
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}}
    rows = {name: row for name, row in kept["rows"].items() if name in FAMILIES}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = measure(name, Path(folder))
        print(name, json.dumps(rows[name]), file=sys.stderr)
    record = {"version": ours.our_version(), "peer": llamacpp.versions(llamacpp.XLLAMACPP), "rows": rows}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(page(rows))
    for name, row in rows.items():
        for miss in misses(row):
            print(f"{name}: {miss}", file=sys.stderr)


if __name__ == "__main__":
    main()
