"""Speculative decoding: who drafts, which tree, and the loop that verifies."""
