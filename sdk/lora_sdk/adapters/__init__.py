"""Adapters (LoRA weights): read PEFT folders, shard them over boards, swap them into slots."""
