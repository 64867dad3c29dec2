"""transformers' own logits of each family's tiny model, in float32, for the tests to compare with.

    python -m benchmarks.transformers_families [--files FOLDER] [NAME ...]      writes tests/vectors/families/NAME.npz

Needs torch and transformers, which nothing else here does: the tests read what this has written. Weights are drawn by
numpy from a seed (tests/families), so a file keeps their SHA-256 instead. With --files also NAME.gguf and NAME.npy (the
logits), to try a family on. Not here: the table of families, how encoders are asked (both tests/families).
"""

import argparse
import datetime
from pathlib import Path

import numpy as np

from tests.families import FAMILIES
from tests.families.convert import draw_checkpoint, write_family
from tests.families.encoders import ENCODERS
from tests.families.encoders import ask as ask_encoder
from tests.families.family import F32, Family, Weights
from tests.families.stored import ids_of, save


def ask(family: Family) -> tuple[Weights, F32, F32]:
    """The drawn checkpoint, and transformers' logits of `ids_of()` in float32 and in float64 (n_ids, n_vocab)."""
    import torch
    import transformers

    kind = getattr(transformers, family.model)
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = kind(kind.config_class(**family.whole_config, **plain)).eval()
    held = model.state_dict()
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    weights = draw_checkpoint(family, {n: tuple(t.shape) for n, t in held.items() if n not in tied})
    full = {n: torch.from_numpy(w) for n, w in weights.items()}
    model.load_state_dict(full | dict.fromkeys(tied, full["model.embed_tokens.weight"]), strict=True)
    with torch.no_grad():
        ids = torch.tensor([ids_of()])
        single = model(ids).logits[0].numpy().astype(np.float32)
        double = model.double()(ids).logits[0].numpy().astype(np.float32)
    return weights, single, double


def main() -> None:
    import torch
    import transformers

    parser = argparse.ArgumentParser(description="Ask transformers for the logits of the tiny models.")
    parser.add_argument("--files", type=Path, help="also write NAME.gguf and NAME.npy into this folder")
    parser.add_argument("names", nargs="*", help=f"rows (all): {', '.join([*FAMILIES, *ENCODERS])}")
    args = parser.parse_args()
    provenance = {
        "by": "python -m benchmarks.transformers_families", "on": datetime.date.today().isoformat(),
        "transformers": transformers.__version__, "torch": torch.__version__,
    }  # fmt: skip
    for name in args.names or [*FAMILIES, *ENCODERS]:
        if name in ENCODERS:
            ask_encoder(name)
            continue
        weights, logits, double = ask(FAMILIES[name])
        save(name, weights, logits, provenance)
        noise = np.abs(logits - double).max() / logits.std()
        print(f"{name}: standard deviation {logits.std():.3f}; float64 differs by {noise:.1e} of it")
        if args.files:
            args.files.mkdir(parents=True, exist_ok=True)
            write_family(args.files / f"{name}.gguf", FAMILIES[name], weights)
            np.save(args.files / f"{name}.npy", logits)


if __name__ == "__main__":
    main()
