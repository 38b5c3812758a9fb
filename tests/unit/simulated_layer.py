"""A layer of LLaMA2-7B on a simulated card (`make long`, tests/rtl/test_card_cycles.py): W4A8 in
groups of 128, K and V in FP16, one row behind 127 positions, one committed position, 32 FP16 lanes,
memory that answers after 31 cycles, lm_head of 290 columns."""

CYCLES = 2_224_901  # of the step, doorbell to done
LAYER_CYCLES = 2_130_762  # of them from the first norm's begin to the last residual's end
COMMANDS = {  # cycles of single commands, (K, N) of matmuls
    (4096, 12288): 418_771,
    (4096, 4096): 139_731,
    (4096, 22016): 750_131,
    (11008, 4096): 375_389,
}
# Of the step, on a card of 32 channels with vector pipes and four attention units, all with lanes
# of FP16.
CHANNELS = {32: 106_537}
# A whole token, static INT8 K and V, banks of 0.75 of a line (test_whole_token.py). With matmuls
# that waited for all of x, and a finisher's tiles one by one; not more since then.
TOKEN = 2_403_025
# One layer of it, lm_head of 512 columns.
STATIC = {"cycles": 90_032, "modelled": 89_309}
# One and two layers of it with an lm_head of 32,000, the same banks, by boards and rows of a step,
# with firmware that took some 170 cycles a step less.
LAYERS = {(1, 1): (174_410, 245_185), (4, 1): (54_160, 77_435), (1, 2): (204_205, 287_330)}
