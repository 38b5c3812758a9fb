"""vLLM's own tests of its API against a server on emulated boards (docs/vllm.md).

    python -m tests.vllm.upstream.run [--source vllm-0.32.0.tar.gz] [FILE ...]

In vLLM's environment. The source package comes from the package index by pip; what is chosen of it
is unpacked into a temporary folder, with models' names of ours in place of theirs."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lora_sdk import demo_model_path
from tests.processes import ROOT, environment
from tests.vllm.upstream.chosen import CHOSEN, EXPECTED, LEFT_OUT, NEEDS

HERE = Path(__file__).parent
SHIMS = {"tests/utils.py": "server_shim.py", "tests/conftest.py": "conftest_shim.py"}
WITH = ("tests/__init__.py", "tests/entrypoints/__init__.py", "tests/entrypoints/conftest.py")


def fetched(folder: Path) -> Path:
    """The source package of the installed version."""
    import vllm

    version = vllm.__version__.partition("+")[0]
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", *NEEDS], check=True)
    env = {**os.environ, "VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
    words = ["download", "--no-deps", "--no-binary", "vllm", "--no-build-isolation"]
    subprocess.run([*pip, *words, "--dest", str(folder), f"vllm=={version}"], check=True, env=env)
    return folder / f"vllm-{version}.tar.gz"


def unpack(source: Path, folder: Path, files: Sequence[str]) -> None:
    """The chosen tests and what they import."""
    packages = {str(parent / "__init__.py") for file in files for parent in Path(file).parents[:-1]}
    wanted = {*files, *WITH, *packages}
    with tarfile.open(source) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            content = archive.extractfile(member) if name in wanted else None
            if content is not None:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(adapted(content.read().decode()))
    for name, shim in SHIMS.items():
        (folder / name).write_text((HERE / shim).read_text())
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")


def adapted(text: str) -> str:
    """The demo model and its adapter in place of those that vLLM's tests download."""
    model = str(demo_model_path())
    named = re.search(r'^MODEL_NAME = (".*")$', text, re.MULTILINE)
    if named is not None:
        text = text.replace(named[1], repr(model))
    text = re.sub(r'^    "text": ".*",$', f'    "text": {model!r},', text, flags=re.MULTILINE)
    text = re.sub(r'^    "multimodal": ".*",\n', "", text, flags=re.MULTILINE)
    return re.sub(
        r"return hf_api\(\).snapshot_download\(.*\)",
        'return __import__("os").environ["UPSTREAM_ADAPTER"]',
        text,
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="vLLM's source package, if it is there already")
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("files", nargs="*", help=f"of these: {', '.join(CHOSEN)}")
    args = parser.parse_args(words)
    files = [f"tests/entrypoints/{name}" for name in args.files or CHOSEN]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unpack(args.source or fetched(folder), folder, files)
        env = {
            **environment(),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "sdk"), str(ROOT / "host")]),
            "LORA_BOARDS": str(args.boards),
            "UPSTREAM_ADAPTER": str(ROOT / "models" / "demo_adapter_lora"),
            "UPSTREAM_EXPECTED": json.dumps(EXPECTED),
            "UPSTREAM_LEFT_OUT": json.dumps(LEFT_OUT),
            "VLLM_NO_USAGE_STATS": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rsxX", "-p", "no:cacheprovider", *files]
        return subprocess.run(command, cwd=folder, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
