"""GGUF, the model files of llama.cpp: a strict reader, block types, tokenizers."""
