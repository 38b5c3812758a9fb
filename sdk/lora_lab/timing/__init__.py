"""Modelled time of a step on real boards. Never measured, and independent of values."""
