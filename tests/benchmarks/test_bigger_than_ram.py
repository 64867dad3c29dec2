"""The comparison beyond memory: what its figures are made of, and that it runs. Not here: the figures."""

from pathlib import Path

from benchmarks.bigger_than_ram import PEER_MODES, Ours, ratios, run_ours
from benchmarks.table import bigger_rows
from tests.tiny import tiny_llama


def test_ratios_are_of_medians_and_the_best_mode_of_the_peer() -> None:
    mmap, default = PEER_MODES
    found = {
        "one": [{"tok_s": t, "streamed_bytes": 1000, "disk_bytes_s": 4000.0} for t in (3.0, 2.0, 9.0)],
        "batch": [{"tok_s": 21.0, "disk_bytes_s": 4000.0}],
        mmap: [{"tok_s": 0.5}, {"tok_s": 0.4}, {"tok_s": 0.3}],
        default: [{"tok_s": 0.0}],
    }
    wanted = {"tok_s": 3.0, "batch_ratio": 7.0, "peer_tok_s": 0.4, "ratio_to_peer": 7.5, "share_of_disk_limit": 0.75}
    assert ratios(found) == wanted
    table = bigger_rows({"models": {"8b": {"steady": {"limit_mib": 1600, **wanted}}, "none": {}}})
    assert table[2:] == ["| 8b | 1,600 MiB | 3.00 | 0.40 | 7.50 | 75% | 7.0 |"]
    del found[mmap]
    assert "peer_tok_s" not in ratios(found), "a peer that was killed has no figure"


def test_our_turn_tells_what_was_read(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "tiny.gguf", n_vocab=1300)
    found = run_ours(Ours(str(model), "stream", parallel=2, pinned=100_000, ring=100_000), None)
    assert found["read_per_step"] > found["streamed_bytes"] * 0.7 > 0 < found["pinned_bytes"], "but for what is ahead"
    assert found["load_mode"] == "stream" and found["disk_bytes_s"] > 0
    bits = {run_ours(Ours(str(model), "resident", parallel=2), None)["logits_sha256"], found["logits_sha256"]}
    assert len(bits) == 1
