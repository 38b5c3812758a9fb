"""Models from Hugging Face folders: configuration, tensor names, weights as FP16, RoPE tables."""
