"""Known-answer tests for each unit of a board. Each runs a tiny command list and compares board
memory with expected bytes. These are computed on this computer from the number rules, not by the
kernels under test."""
