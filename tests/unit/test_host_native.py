"""One ABI for C and Python, and a class for every status code."""

from __future__ import annotations

import ctypes
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi, errors, native
from lora_host.failure import error_classes
from lora_host.overlay import IMAGE_MAGIC
from lora_host.records import timeout_record

HEADERS = Path(__file__).parents[2] / "csrc" / "include" / "lora"


def test_constants_are_the_headers() -> None:
    text = (HEADERS / "abi.h").read_text()
    defines = re.findall(r"^#define LORA_(\w+) (0x[0-9a-f]+|\d+)", text, re.MULTILINE)
    assert len(defines) > 30
    for name, value in defines:
        assert getattr(abi, name) == int(value, 0), name
    assert native.ABI_NUMBER == abi.ABI_NUMBER
    assert IMAGE_MAGIC == abi.IMAGE_MAGIC
    with pytest.raises(AttributeError, match="LORA_NOTHING"):
        _ = abi.NOTHING


def test_dtypes_have_the_compiled_layout() -> None:
    ffi = native.ffi()
    names = re.findall(r"^struct lora_(\w+) \{", (HEADERS / "abi.h").read_text(), re.MULTILINE)
    assert len(names) > 15
    for name in names:
        kind = abi.dtype(name)
        assert kind.itemsize == ffi.sizeof(f"struct lora_{name}"), name
        for field in kind.names or ():
            assert kind.fields is not None
            assert kind.fields[field][1] == ffi.offsetof(f"struct lora_{name}", field)
            size = ffi.sizeof(ffi.typeof(f"struct lora_{name}")) and kind.fields[field][0].itemsize
            assert size == ffi.sizeof(dict(ffi.typeof(f"struct lora_{name}").fields)[field].type)
    with pytest.raises(KeyError, match="lora_nothing"):
        abi.dtype("nothing")


def test_a_value_written_by_numpy_is_read_by_c() -> None:
    ffi = native.ffi()
    rows = np.zeros(2, abi.dtype("row"))
    rows[1]["position"], rows[1]["parent"], rows[1]["reserved"][8] = 77, -1, 5
    seen = ffi.from_buffer("struct lora_row[]", rows)
    assert (seen[1].position, seen[1].parent, seen[1].reserved[8]) == (77, -1, 5)


def test_a_library_of_another_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    native._module.cache_clear()
    native.lib.cache_clear()
    other = abi.ABI_NUMBER + 1
    monkeypatch.setattr(native, "ABI_NUMBER", other)
    with pytest.raises(errors.OverlayError, match=f"ABI {abi.ABI_NUMBER} found, {other} expected"):
        native.lib()
    monkeypatch.undo()
    monkeypatch.setitem(native._SIZES, "lora_row", 68)
    with pytest.raises(errors.OverlayError, match="struct lora_row has 64 bytes, 68 expected"):
        native.lib()
    monkeypatch.undo()
    native.lib()


def test_every_status_has_a_name_and_a_class() -> None:
    text = (HEADERS / "abi.h").read_text()
    codes = dict(re.findall(r"(LORA_ERR_\w+) = (\d+)", text))
    assert len(codes) > 30
    library, string = native.lib(), native.ffi().string
    for name, value in codes.items():
        assert string(library.lora_status_name(int(value))).decode() == name
    assert set(error_classes()) == {int(value) for value in codes.values()}
    assert string(library.lora_status_name(0)) == b"LORA_OK"
    for unknown in (-1, 50, 9999):
        assert string(library.lora_status_name(unknown)) == b"LORA_ERR_UNKNOWN"


def test_errors_are_one_tree() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    tree = [kind for kind in kinds if issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.LoraError) for kind in tree) and len(tree) == 11
    assert issubclass(errors.HangError, errors.TransportError)


def test_crc_is_zlibs() -> None:
    ffi, library = native.ffi(), native.lib()
    data = np.random.default_rng(3).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    for size in (0, 1, 7, 64, 4096, 5000):
        part = ffi.from_buffer(data[:size]) if size else ffi.NULL
        assert library.lora_crc32(0, part, size) == zlib.crc32(data[:size])


def test_timeouts() -> None:
    record = timeout_record({"step_us": 9_000_000})
    assert record.step_us == 9_000_000 and record.watchdog_ms * 1000 < record.step_us
    assert record.size == ctypes.sizeof(ctypes.c_uint32) * 9
    for changes, message in (
        ({"step": 1}, r"timeout 'step' is not known; did you mean 'step_us'\?"),
        ({"poll_us": 0}, "poll_us: 0 found"),
        ({"step_us": 1000}, "more than the watchdog's 3000 ms"),
    ):
        with pytest.raises(errors.RequestError, match=message):
            timeout_record(changes)
