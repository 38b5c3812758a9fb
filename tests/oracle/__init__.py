"""An independent implementation of the arithmetic, written only from docs/numbers.md: whole
matrices, whole sequences, no boards, blocks, steps or cache. Boards must give the same logits byte
for byte."""

from tests.oracle.forward import Oracle, load_weights

__all__ = ["Oracle", "load_weights"]
