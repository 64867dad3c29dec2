"""The step block: what changes from step to step, in one place, so that a program is recorded once. Not here: code.

Sixteen int64 words; a program's ops read them by these byte offsets. A row is one token of one sequence at one
position; rows of one sequence are neighbours and ascend.
"""

N_ROWS = 0  # rows in this step
N_OUT = 8  # rows whose logits are wanted
TOKENS = 16  # address of int64[n_rows]: token ids
POSITIONS = 24  # address of int64[n_rows]
PAGES = 32  # address of int64[n_rows]: address of the row's page table, itself int64[]: address of page p of all layers
OUT_ROWS = 40  # address of int64[n_out]: which row
SAMPLERS = 48  # address of int64[n_out]: address of a sampler record (sample.py), 0 = logits only
CANCEL = 56  # not 0: leave at the next barrier
ERROR = 64  # an op's complaint, not 0: leave at the next barrier
LAYER = 72  # layers and steps passed so far, for the watchdog
SAMPLE_NS = 80  # time spent on choosing tokens so far, summed over rows
SEEN = 88  # address of int64[n_rows]: the last position a row sees: its own, in an encoder its text's last
N_WORDS = 16

REPLICATE = 2  # up to so many rows every thread makes its own copy of norms and activations: cheaper than a barrier
PAGE = 256  # positions in a KV page, which is also one attention tile
