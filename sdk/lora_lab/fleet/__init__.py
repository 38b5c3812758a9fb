"""GPUs that prefill and boards that decode (GLITCHES): who does what, and what it would reach."""
