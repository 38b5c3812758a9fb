"""Quantizes a model folder: calibration, SmoothQuant, 4-bit groups, compressed-tensors output."""
