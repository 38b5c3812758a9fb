"""Packages live in several folders, and the C extension is built by cffi: the two things that
pyproject.toml cannot say."""

from setuptools import find_packages, setup

DATA = {
    "lora_host.overlays": "overlays",
    "lora_host.boards_data": "boards",
    "lora_sdk.models": "models",
}

TYPED = ("lora_sdk", "lora_host", "lora_lab", "lora_cluster", "lora_prefill", "lora_vllm")

setup(
    packages=[*find_packages("sdk"), *find_packages("host"), *DATA],
    package_dir={"": "sdk", "lora_host": "host/lora_host", **DATA},
    package_data={name: ["**/*"] for name in DATA}
    | {
        "lora_lab.timing": ["data/*"],
        "lora_cluster.dispatch": ["*.json"],
        "lora_sdk.serve": ["page/*"],
        **{name: ["py.typed"] for name in TYPED},
    },
    cffi_modules=["host/lora_host/ffi_build.py:make_builder"],
)
