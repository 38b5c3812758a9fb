"""The model in PyTorch, by transformers: from its folder, or from a quantized one's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, RequestError


def load_torch(folder: Path, model: Path | None, device: str) -> Any:
    """A causal model of transformers on `device`: of `model` if it is given, in the type of its
    files, else of `folder` in FP32, dequantized where that is quantized. RequestError without the
    device or where it would round FP32 factors to TF32, ModelError if it cannot be loaded."""
    import torch
    import transformers

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RequestError(f"prefill is {device!r}; torch finds no GPU here, use 'cpu'")
    if device.startswith("cuda"):
        refuse_tf32()
    transformers.utils.logging.disable_progress_bar()
    try:
        loaded = _load(torch, transformers, folder, model)
        return loaded.eval().to(device)
    except (OSError, RuntimeError, ValueError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{model or folder}: transformers cannot load it: {line}") from error


def refuse_tf32() -> None:
    """RequestError if torch may multiply FP32 on a GPU with factors rounded to TF32's ten bits,
    which is off until somebody sets it."""
    import torch

    matmul = torch.backends.cuda.matmul
    found = getattr(matmul, "fp32_precision", None)  # since torch 2.9
    if found == "tf32" or (found is None and matmul.allow_tf32):
        raise RequestError(
            "fast prefill: torch is set to round FP32 factors to TF32; expected whole FP32; call "
            "torch.set_float32_matmul_precision('highest') before the engine opens"
        )


def _load(torch: Any, transformers: Any, folder: Path, model: Path | None) -> Any:
    causal = transformers.AutoModelForCausalLM
    if model is not None:
        return causal.from_pretrained(model, local_files_only=True, **_dtype(transformers, "auto"))
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if getattr(config, "quantization_config", None) is None:
        kind = _dtype(transformers, torch.float32)
        return causal.from_pretrained(folder, local_files_only=True, **kind)
    del config.quantization_config
    return _dequantized(torch, causal, config, folder)


def _dtype(transformers: Any, kind: object) -> dict[str, object]:
    """The argument's name differs between releases."""
    new = tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 56)
    return {"dtype" if new else "torch_dtype": kind}


def _dequantized(torch: Any, causal: Any, config: Any, folder: Path) -> Any:
    from lora_sdk.model.checkpoint import Checkpoint
    from lora_sdk.model.dequantized import dequantized

    model = causal.from_config(config).float()
    tensors = {
        name: torch.from_numpy(array)
        for name, array in dequantized(Checkpoint.open(folder)).items()
    }
    report = model.load_state_dict(tensors, strict=False)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    missing = set(report.missing_keys) - tied
    if missing or report.unexpected_keys:
        names = sorted(missing) or report.unexpected_keys
        raise ValueError(f"tensor {names[0]} is missing or unknown; name the prefill model")
    model.tie_weights()
    return model
