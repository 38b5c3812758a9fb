"""A step on boards: its rows, its block, what it returns."""
