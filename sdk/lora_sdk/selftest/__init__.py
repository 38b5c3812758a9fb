"""Known answers of each unit of a board alone: a tiny command list each, run as any list is, and
the bytes that it must leave in board memory, computed on this computer from the arithmetic's rules
and not by the kernels under test."""
