"""Requests over several engines: some compute prompts, some new tokens (docs/fleet.md)."""
