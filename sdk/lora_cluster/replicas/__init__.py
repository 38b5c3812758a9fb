"""Replicas: engines in other processes, placed and supervised by Ray (docs/ray.md)."""
