"""Claims on a header: every tensor once, all of them, with the right dimensions, and nothing left over."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from engine.models.claims import Claims, Scope
from engine.models.listing import Listing
from engine.weights.store import Store
from tests.blocks import quantise

VALUES = np.arange(24 * 32, dtype=np.float32).reshape(24, 32)
TENSORS = [
    ("m", (32, 24), "Q8_0", quantise(VALUES, "Q8_0")),
    ("pair", (32, 24), "F32", quantise(VALUES, "F32")),
    ("v", (32,), "F32", quantise(VALUES[1], "F32")),
    ("half", (32,), "F16", quantise(VALUES[1], "F16")),
    ("experts", (32, 8, 3), "Q8_0", quantise(VALUES, "Q8_0")),
    ("odd", (9, 3), "F16", quantise(VALUES[:3, :9].copy(), "F16")),
    ("blk.1.attn_q.bias", (32,), "F32", quantise(VALUES[2], "F32")),
    ("blk.1.more", (32,), "F32", quantise(VALUES[3], "F32")),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "some.gguf", {"general.architecture": "llama"}, TENSORS)


@pytest.fixture
def listing(path: Path) -> Listing:
    return Listing(read_gguf(path), 2)


def claim_all(claims: Claims) -> None:
    claims.matrix("m", 32, 24)
    claims.matrix("pair", 32, 24)
    claims.vector("v", 32)
    claims.experts("experts", 32, 8, 3)
    claims.table("odd", 9, 3)
    assert claims.floats("gone", 32) is None
    Scope(claims, 1).bias("attn_q", 32)


def test_what_is_claimed_and_what_is_skipped_is_all_there_is(path: Path, listing: Listing) -> None:
    claim_all(listing)
    listing.skip("blk.1.")
    with pytest.raises(UnsupportedModel, match=r"1 tensors belong to no known part .*\('half'\)"):
        listing.finish()
    listing.skip("ha")
    listing.finish()
    store = Store(read_gguf(path))
    claim_all(store)
    store.close()


def test_leftovers_are_named(listing: Listing) -> None:
    listing.matrix("m", 32, 24)
    with pytest.raises(UnsupportedModel, match=r"7 tensors .*'blk.1.attn_q.bias', 'blk.1.more', 'experts', "):
        listing.finish()


def test_layers_beyond_those_that_are_claimed_are_no_leftover(path: Path) -> None:
    listing = Listing(read_gguf(path), 1)
    with pytest.raises(BadModelFile, match="block_count gives 1 layers, but the file holds tensors of further ones"):
        listing.finish()


def test_wrong_dimensions_missing_tensors_and_odd_widths_are_refused(listing: Listing) -> None:
    with pytest.raises(BadModelFile, match=r"m has dimensions \(32, 24\); \(32, 25\) follow"):
        listing.matrix("m", 32, 25)
    with pytest.raises(BadModelFile, match=r"experts has dimensions \(32, 8, 3\); \(32, 8, 4\) follow"):
        listing.experts("experts", 32, 8, 4)
    with pytest.raises(BadModelFile, match=r"experts has dimensions \(32, 8, 3\); \(32, 8\) follow"):
        Listing(listing.gguf, 2).matrix("experts", 32, 8)
    with pytest.raises(BadModelFile, match=r"gone is missing \(2 layers are claimed\)"):
        listing.vector("gone", 32)
    with pytest.raises(UnsupportedModel, match="half is F16; F32 is expected"):
        listing.vector("half", 32)
    with pytest.raises(BadModelFile, match="half is F16"):
        Listing(listing.gguf, 2).floats("half", 32)
    with pytest.raises(UnsupportedModel, match="rows of 9; a multiple of 8"):
        listing.matrix("odd", 9, 3)
    with pytest.raises(UnsupportedModel, match="halves of 12 rows; a multiple of 8"):
        listing.halves("pair", 32, 12)


def test_a_tensor_is_claimed_once(listing: Listing) -> None:
    listing.vector("v", 32)
    with pytest.raises(AssertionError, match="claimed twice"):
        listing.vector("v", 32)
