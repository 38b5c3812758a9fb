"""Adapters (LoRA weights): reading PEFT folders, cutting them for boards, slots on the boards."""
