"""A layer of LLaMA2-7B on a simulated card (`make long`, tests/rtl/test_card_cycles.py): W4A8 in
groups of 128, K and V in FP16, one row behind 127 positions, one committed position, 32 FP16 lanes,
memory that answers after 31 cycles, lm_head of 290 columns."""

CYCLES = 2_241_748  # of the step, doorbell to done
LAYER_CYCLES = 2_145_729  # of them from the first norm's begin to the last residual's end
COMMANDS = {  # cycles of single commands, (K, N) of matmuls
    (4096, 12288): 418_771,
    (4096, 4096): 139_731,
    (4096, 22016): 750_131,
    (11008, 4096): 375_389,
}
# Of the step, on cards with so many channels, vector pipes and four attention units; STATIC: with
# static INT8 K and V. ONE: with one attention unit.
CHANNELS = {8: 316_258, 32: 137_110}
STATIC = {8: 298_591}
ONE = {8: 352_951, 32: 173_803}
