# The core's first instruction: stack, cleared bss, the program.
    .section .text.start, "ax"
    .globl _start
_start:
    la   sp, card_stack_top
    la   a0, card_bss_start
    la   a1, card_bss_end
1:  bgeu a0, a1, 2f
    sw   zero, 0(a0)
    addi a0, a0, 4
    j    1b
2:  call card_main
3:  j    3b
