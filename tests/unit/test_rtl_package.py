"""The hardware source has the numbers and commands of abi.h."""

from __future__ import annotations

import re

import pytest

from lora_host import abi
from tools import rtl_package


def test_the_package_is_current() -> None:
    assert rtl_package.PACKAGE.read_text() == rtl_package.package(), "python -m tools.rtl_package"


def test_it_has_all_constants() -> None:
    """Counted in another way: every name that is defined, but the header's own guard."""
    header = rtl_package.HEADER.read_text()
    found = rtl_package.constants(header)
    macros = re.findall(r"^#define (LORA_\w+) +[^ ]", header, re.MULTILINE)
    members = re.findall(r"\b(LORA_\w+) = ", header)
    assert set(macros) | set(members) == set(found)
    assert found["LORA_MAX_COMMANDS"] == abi.MAX_COMMANDS and "LORA_ABI_H" not in found


@pytest.mark.parametrize("name", rtl_package.COMMANDS)
def test_a_command_has_512_bits_in_the_order_of_memory(name: str) -> None:
    fields = list(rtl_package.fields(name))
    assert sum(bits for _, _, bits in fields) == 512
    written = re.findall(r"logic \[(\d+):0\] (\w+);", rtl_package.structure(name))
    assert [(field, bits - 1) for field, _, bits in reversed(fields)] == [
        (field, int(top)) for top, field in written
    ]


def test_a_hole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hole = abi.np.dtype({"names": ["a", "b"], "formats": ["u1", "<u4"], "offsets": [0, 4]})
    monkeypatch.setattr(abi, "dtype", lambda name: hole)
    with pytest.raises(ValueError, match="3 bytes before b have no name"):
        list(rtl_package.fields("command"))
