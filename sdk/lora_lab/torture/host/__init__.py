"""Faults of processes, files and limits around boards, each run in processes of its own."""
