"""An independent implementation of the number rules: whole matrices, whole sequences, no boards,
blocks, steps or cache. Boards must give the same logits byte for byte."""

from tests.oracle.forward import Oracle, load_weights

__all__ = ["Oracle", "load_weights"]
