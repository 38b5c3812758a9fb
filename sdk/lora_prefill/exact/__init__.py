"""The boards' arithmetic in torch: K, V and logits of prompts with the boards' own bytes. Only
imported where torch is asked for."""
