"""A second implementation of the arithmetic, written from the rules alone: whole matrices, whole
sequences, no boards, blocks, steps or cache. Boards must give its logits byte for byte."""

from tests.oracle.forward import Oracle, load_weights

__all__ = ["Oracle", "load_weights"]
