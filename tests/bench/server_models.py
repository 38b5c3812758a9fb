"""A llama model of a GGUF file for servers of different programs: a Hugging Face folder in FP16
with its tokenizer."""

from __future__ import annotations

from pathlib import Path


def write_folder(source: Path, folder: Path) -> None:
    """As transformers reads the file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": source.name}
    read = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float16, **where)
    config = AutoConfig.from_pretrained(source.parent, **where)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16)  # which can be saved
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(folder)
