"""The optional Python routes against mocks that take exactly the calls that the real packages take:
pynq's signatures are read from its own source, pyxrt's from XRT's binding."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from lora_host.errors import OverlayError, PlacementError, RequestError, TransportError
from lora_host.overlay import Overlay, load_overlay
from lora_host.routes import pynq_route, pyxrt_route
from lora_host.xclbin import read_xclbin

DATA = Path(__file__).parents[1] / "data"
PYXRT = json.loads((DATA / "pyxrt_signatures.json").read_text())
PYNQ = json.loads((DATA / "pynq_signatures.json").read_text())["functions"]
BITFILE = load_overlay("lora_f_u280").container
assert BITFILE is not None


# --- pyxrt ---


class Uuid:
    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Callable[..., str]:
        assert name in PYXRT["uuid"]["methods"], f"pyxrt.uuid has no {name}"
        return lambda: self._text


class XrtDevice:
    """pyxrt.device: methods and how many arguments they take as in the table."""

    answers: ClassVar[dict[str, str]] = {
        "bdf": "0000:3b:00.1",
        "name": "xilinx_u280_gen3x16_xdma_base_1",
        "max_clock_frequency_mhz": "500",
        "thermal": json.dumps(
            {
                "thermals": [
                    {"location_id": "fpga0", "temp_C": "47", "is_present": "true"},
                    {"location_id": "cage_temp_0", "temp_C": "0", "is_present": "false"},
                ]
            }
        ),
        "electrical": json.dumps(
            {
                "power_rails": [
                    {
                        "id": "vccint",
                        "voltage": {"volts": "0.850", "is_present": "true"},
                        "current": {"amps": "0.000", "is_present": "false"},
                    }
                ],
                "power_consumption_watts": "21.4",
            }
        ),
    }
    loaded = "00000000-0000-0000-0000-000000000000"
    other = ""  # what another process loads after us

    def __init__(self, *arguments: Any) -> None:
        kinds = [type(argument).__name__ for argument in arguments]
        assert kinds in PYXRT["device"]["constructors"], f"pyxrt.device({kinds})"
        if arguments and arguments[0] == 9:
            raise RuntimeError("Could not open device with index '9'")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        counts = PYXRT["device"]["methods"].get(name)
        assert counts, f"pyxrt.device has no {name}"

        def call(*arguments: Any) -> Any:
            assert len(arguments) in counts, f"pyxrt.device.{name} of {len(arguments)} arguments"
            return getattr(self, f"_{name}")(*arguments)

        return call

    def _get_info(self, key: str) -> str:
        return self.answers[key]

    def _get_xclbin_uuid(self) -> Uuid:
        return Uuid(type(self).loaded)

    def _load_xclbin(self, path: str) -> Uuid:
        assert isinstance(path, str)
        type(self).loaded = type(self).other or str(read_xclbin(path).uuid)
        return self._get_xclbin_uuid()


@pytest.fixture
def pyxrt(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("pyxrt")
    assert PYXRT["functions"]["enumerate_devices"] == [0]
    module.enumerate_devices = lambda: 1  # type: ignore[attr-defined]
    module.device = XrtDevice  # type: ignore[attr-defined]
    keys = {name: name for name in PYXRT["xrt_info_device"]}
    module.xrt_info_device = types.SimpleNamespace(**keys)  # type: ignore[attr-defined]
    monkeypatch.setattr(XrtDevice, "loaded", XrtDevice.loaded)
    monkeypatch.setitem(sys.modules, "pyxrt", module)
    return module


def test_boards_facts_and_sensors_through_pyxrt(pyxrt: types.ModuleType) -> None:
    (board,) = pyxrt_route.boards()
    assert (board.uri, board.shell) == ("xrt:0000:3b:00.1", "xilinx_u280_gen3x16_xdma_base_1")
    assert board.xclbin == "" and board.clock_mhz == 500
    assert board.sensors == {"fpga0": "47 C", "vccint voltage": "0.850 V"}


def test_a_container_through_pyxrt_is_checked_by_its_uuid(
    pyxrt: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BITFILE is not None
    wanted = str(read_xclbin(BITFILE).uuid)
    assert pyxrt_route.load(0, BITFILE) == wanted == pyxrt_route.boards()[0].xclbin
    monkeypatch.setattr(XrtDevice, "other", "11111111-2222-3333-4444-555555555555")
    with pytest.raises(OverlayError, match=f"uuid 11111111-.* found .* {wanted} expected"):
        pyxrt_route.load(0, BITFILE)
    with pytest.raises(TransportError, match="Could not open device with index '9'"):
        pyxrt_route.load(9, BITFILE)


def test_a_shell_without_sensors_and_odd_texts(
    pyxrt: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("NA", "[]", '{"thermals": 3}', '{"thermals": [1, {}]}'):
        monkeypatch.setitem(XrtDevice.answers, "thermal", text)
        monkeypatch.setitem(XrtDevice.answers, "electrical", "NA")
        assert pyxrt_route.boards()[0].sensors == {}


# --- pynq ---


def check_call(name: str, arguments: int, keywords: dict[str, Any], bound: bool = True) -> None:
    """Whether the real function of the table takes such a call."""
    table = PYNQ[name]
    names = table["parameters"][1 if bound else 0 :]
    assert arguments <= len(names), f"{name}: {arguments} arguments, {names} expected"
    unknown = set(keywords) - set(names[arguments:])
    assert table["keywords"] or not unknown, f"{name}: keywords {unknown}, {names} expected"
    needed = set(names[: len(names) - table["defaults"]]) - set(names[:arguments]) - set(keywords)
    assert not needed, f"{name}: without {needed}"


class PynqBuffer(np.ndarray):  # type: ignore[type-arg]
    pass


class Memory:
    def __init__(self, name: str) -> None:
        self.name = name


class Device:
    def __init__(self, memories: list[str]) -> None:
        assert PYNQ["XrtDevice.name"]["property"]
        self.name = "xilinx_u280_gen3x16_xdma_base_1"
        self._memories = memories

    def get_memory_by_name(self, *arguments: Any, **keywords: Any) -> Memory:
        check_call("XrtDevice.get_memory_by_name", len(arguments), keywords)
        if arguments[0] not in self._memories:
            raise RuntimeError("Could not find memory")
        return Memory(arguments[0])


class PynqOverlay:
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        check_call("Overlay.__init__", len(arguments), keywords)
        self.device = keywords["device"]
        self.freed = False

    def free(self, *arguments: Any) -> None:
        check_call("Overlay.free", len(arguments), {})
        self.freed = True


@pytest.fixture
def pynq(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("pynq")
    assert PYNQ["DeviceMeta.devices"]["property"]
    tags = [f"HBM[{i}]" for i in range(31)] + ["DDR[0]", "DDR[1]"]
    module.Device = types.SimpleNamespace(devices=[Device(tags)])  # type: ignore[attr-defined]
    module.Overlay = PynqOverlay  # type: ignore[attr-defined]

    def allocate(*arguments: Any, **keywords: Any) -> PynqBuffer:
        check_call("allocate", len(arguments), keywords, bound=False)
        if np.prod(arguments[0]) > 1 << 24:
            raise RuntimeError("Allocate failed: -12")
        buffer = np.zeros(*arguments).view(PynqBuffer)
        buffer.memory = keywords["target"]
        return buffer

    module.allocate = allocate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynq", module)
    yield module


@pytest.fixture
def overlay() -> Overlay:
    return load_overlay("lora_f_u280")


def test_overlay_and_buffers_are_pynqs_own(pynq: types.ModuleType, overlay: Overlay) -> None:
    assert pynq_route.devices() == [(0, "xilinx_u280_gen3x16_xdma_base_1")]
    board = pynq_route.open_board(overlay, download=False)
    assert isinstance(board.pynq, PynqOverlay)
    buffer = board.allocate(5, (4, 8), np.float16)
    assert isinstance(buffer, PynqBuffer) and buffer.shape == (4, 8)
    assert buffer.dtype == np.float16 and buffer.memory.name == "HBM[5]"
    board.close()
    assert board.pynq.freed


def test_errors_of_the_pynq_route(pynq: types.ModuleType, overlay: Overlay) -> None:
    board = pynq_route.open_board(overlay)
    with pytest.raises(RequestError, match=r"bank 34: u280 has banks 0\.\.33"):
        board.allocate(34, 4)
    with pytest.raises(OverlayError, match=r"bank HBM\[31\]: the loaded container has none"):
        board.allocate(31, 4)
    with pytest.raises(PlacementError, match=r"bank 5 \(HBM\[5\]\): no buffer .* -12; .* 255 MiB"):
        board.allocate(5, 1 << 25)
    with pytest.raises(TransportError, match="board 1: PYNQ finds 1"):
        pynq_route.open_board(overlay, 1)
    with pytest.raises(OverlayError, match="lora_f_v80: no xclbin"):
        pynq_route.open_board(load_overlay("lora_f_v80"))


@pytest.mark.parametrize("name", ["pyxrt", "pynq"])
def test_without_the_package_the_cure_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TransportError, match="setup.sh" if name == "pyxrt" else "pip install"):
        pyxrt_route.boards() if name == "pyxrt" else pynq_route.devices()


def test_a_package_that_fails_as_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As pynq 3.0.1 does on Python 3.11, by a dependency."""
    (tmp_path / "pynq.py").write_text("raise ValueError('mutable default for field vlnv')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynq", raising=False)
    with pytest.raises(TransportError, match=r"mutable default .* Python 3\.10 or older"):
        pynq_route.devices()


def test_the_table_is_that_of_the_installed_pynq() -> None:
    """Where pynq 3.0.1 is installed and can be imported, its functions are the table's."""
    try:
        version = importlib.metadata.version("pynq")
        import pynq
        from pynq.buffer import PynqBuffer as RealBuffer
        from pynq.pl_server.xrt_device import XrtDevice as RealDevice
    except Exception as error:  # without XRT it cannot be imported
        pytest.skip(f"pynq: {error}; the table is read from its sdist")
    assert version == "3.0.1"
    owners = {"": pynq, "Overlay": pynq.Overlay, "PynqBuffer": RealBuffer, "XrtDevice": RealDevice}
    for name, table in PYNQ.items():
        owner, _, function = name.rpartition(".")
        if owner == "DeviceMeta" or table["property"]:
            continue
        found = inspect.signature(getattr(owners[owner], function)).parameters.values()
        assert [p.name for p in found if p.kind is not p.VAR_KEYWORD] == table["parameters"], name
