"""What `lora quantize` prints at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_sdk.cli.quantize import quantize as command
from tests.variants import variant, write_checkpoint


def table(folder: Path, *more: str) -> dict[str, list[str]]:
    """Lines by their first words, those that are indented under the one before."""
    text = folder / "text.txt"
    text.write_text("def one(two):\n    return three\n" * 200)
    plain = folder / "plain"
    if not plain.exists():
        write_checkpoint(variant("llama_linear"), plain, "x3")
    out = folder / f"out{len(list(folder.iterdir()))}"
    words = [str(plain), str(out), "--calibration", str(text), "--windows", "2", *more]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.exception is None, done.exception
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("  "):
            found[next(reversed(found))].append(line.strip())
        else:
            found[line[:14].strip()] = [line[14:].strip()]
    return found


def test_the_table_has_bits_costs_and_the_largest_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = table(tmp_path, "--scheme", "w4a8", "--group", "32", "--rotate")
    bits, *costs = found["bits per byte"]
    assert " before, " in bits and " after: " in bits and bits.endswith(" bytes held out")
    assert [cost.rpartition(" ")[0] for cost in costs] == ["lm_head in INT8", "KV cache in INT8"]
    assert ", rotated, " in found["scheme"][0]
    errors = [line.split() for line in found["largest error"][1:]]
    kinds = [name.rpartition(".")[2] for name, _ in errors]
    assert sorted(kinds) == sorted({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                    "down_proj", "lm_head"})  # fmt: skip
    shares = [float(share.rstrip("%")) for _, share in errors]
    assert shares == sorted(shares, reverse=True)
    assert "advice" not in found


def test_advice_names_what_is_more_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more is lost than a bound, none here; of lm_head and the cache what is in INT8."""
    monkeypatch.setattr("lora_sdk.cli.quantize.ADVISED", -1.0)
    monkeypatch.setattr("lora_sdk.cli.quantize.WORTH", -1.0)
    words = ("--scheme", "w4a8", "--group", "32", "--no-zero-points", "--activations", "static")
    (advice,) = table(tmp_path, *words, "--lm-head", "w8", "--kv", "int8-heads")["advice"]
    for option in ("--zero-points", "--activations dynamic", "--scheme w4a16",
                   "--scheme w8a8", "--lm-head fp16", "--kv fp16"):  # fmt: skip
        assert option in advice
    monkeypatch.setattr("lora_sdk.quant.held_out.MOST", -1.0)
    found = table(tmp_path, "--scheme", "w8a8")
    assert all(line.endswith("too much: it stays FP16") for line in found["bits per byte"][1:])
    assert "lm_head fp16, KV cache fp16" in found["scheme"][0]
    assert "--lm-head" not in found["advice"][0] and "--kv" not in found["advice"][0]
