"""lora_prefill: prompts computed in torch, on a GPU or on this computer."""
