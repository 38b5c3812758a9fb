"""Commands that run several engines."""
