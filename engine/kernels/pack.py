"""Repacks a matrix from file rows to panels, eight rows at a time. Not here: the order inside a panel (quants/)."""

from engine.kernels.jit import kernel
from engine.kernels.sync import invoke_row


@kernel(6)
def pack_panels(pack, eight, n, panel, eight_bytes, count):
    """`count` times eight rows at `eight` (eight_bytes apart, n blocks in each row) to panels of the same size."""
    for p in range(count):
        invoke_row(pack, eight + p * eight_bytes, n, panel + p * eight_bytes)
