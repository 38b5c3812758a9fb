"""The first operation whose values differ between two set-ups of boards."""
