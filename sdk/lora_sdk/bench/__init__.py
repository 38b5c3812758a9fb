"""Measurements of this computer: how fast a model runs on its emulated boards, beside how fast its
memory can be read and copied."""
