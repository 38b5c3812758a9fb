"""A llama model of a GGUF file for servers of different programs, all in FP16: a Hugging Face
folder with its tokenizer, and a GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


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


def write_f16(source: Path, path: Path) -> None:
    """The same keys; matrices in FP16, vectors as they are."""
    reader = gguf.GGUFReader(source)
    fields = dict(reader.fields)
    writer = gguf.GGUFWriter(path, fields["general.architecture"].contents())
    for name, field in fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType.MOSTLY_F16)
        kind = field.types[0]
        writer.add_key_value(name, value, kind, field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = np.float16 if values.ndim > 1 else np.float32
        writer.add_tensor(tensor.name, values.astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
