"""Workers that compute prompts for the boards (docs/prefill.md)."""
