"""Fault campaigns: seeded faults in every phase of an engine, and what must come of them."""
