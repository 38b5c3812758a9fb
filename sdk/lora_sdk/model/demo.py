"""The folder of the demo model."""

from __future__ import annotations

from pathlib import Path

from lora_host.errors import ModelError

_NAME = "demo"


def demo_model_path() -> Path:
    """Folder of the demo model that ships with the package.

    Installed, it lies in lora_sdk/models; in a checkout, in models/ at its root. ModelError where
    neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    folders = (package / "models" / _NAME, package.parents[1] / "models" / _NAME)
    for folder in folders:
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(
        f"the demo model is not installed: neither {folders[0]} nor {folders[1]} is there; "
        "name a model folder"
    )
