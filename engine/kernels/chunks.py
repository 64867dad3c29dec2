"""How the threads share the work of one op: by a counter that is 0 when the step begins. Not here: what the work is."""

from engine.kernels.jit import inner
from engine.kernels.step import REPLICATE
from engine.kernels.sync import atomic_load, atomic_swap

ROWS = 4  # neighbours share cache lines of the activations, so a row alone is no unit


@inner
def take(counter, n, nth, least, most):
    """The next units of n as (first, end), none when first = n: a quarter of a fair share of what is left.

    So the chunks shrink and no thread waits long for the last one, whatever slows it down (guided self-scheduling,
    Polychronopoulos and Kuck 1987). `least` units are worth the handing out, no more than `most` fit. Alone, a thread
    takes as many as fit.
    """
    while True:
        first = atomic_load(counter)
        if first >= n:
            return n, n
        k = n if nth == 1 else max(1, least, (n - first) // (nth * 4))
        end = min(n, first + min(k, most))
        if atomic_swap(counter, first, end) == first:
            return first, end


@inner
def rows_of(counter, T, nth, end):
    """The next of T rows as (first, end), after those up to `end` (0 at first); none when first = T.

    Up to REPLICATE rows every thread does all of them, for itself.
    """
    if T <= REPLICATE:
        return end, T
    return take(counter, T, nth, ROWS, T)
