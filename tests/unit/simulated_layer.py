"""A layer of LLaMA2-7B on a simulated card (`make long`, tests/rtl/test_card_cycles.py): W4A8 in
groups of 128, K and V in FP16, one row behind 127 positions, one committed position, 32 FP16 lanes,
memory that answers after 31 cycles, lm_head of 290 columns.

That run took 2,490,478 and 2,394,505 cycles with attention of two products a cycle, which is
297,043 of them, simulated alone; today's takes 49,998. The difference is taken off here until the
layer is simulated once more."""

CYCLES = 2_243_433  # of the step, doorbell to done
LAYER_CYCLES = 2_147_460  # of them from the first norm's begin to the last residual's end
COMMANDS = {  # cycles of single commands, (K, N) of matmuls
    (4096, 12288): 418_771,
    (4096, 4096): 139_731,
    (4096, 22016): 750_131,
    (11008, 4096): 375_389,
}
