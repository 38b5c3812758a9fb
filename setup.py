"""Packages live in three folders, and the C extension is built by cffi: the two things that
pyproject.toml cannot say."""

from setuptools import find_packages, setup

DATA = {
    "lora_host.overlays": "overlays",
    "lora_host.boards_data": "boards",
    "lora_sdk.models": "models",
}

setup(
    packages=[*find_packages("sdk"), *find_packages("host"), *DATA],
    package_dir={"lora_sdk": "sdk/lora_sdk", "lora_host": "host/lora_host", **DATA},
    package_data={name: ["**/*"] for name in DATA}
    | {
        "lora_sdk.timing": ["data/*"],
        "lora_sdk.fleet": ["*.json"],
        "lora_sdk.serve": ["*.html"],
    },
    cffi_modules=["host/lora_host/ffi_build.py:make_builder"],
)
