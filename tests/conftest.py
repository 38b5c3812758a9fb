"""Options and fixtures of all tests. The fixture `transport` selects the boards of a test: emulated
boards of this process, those of the real XRT and those of the mock server for vrtd, in this order;
or the real boards that `--device URI` names. Tests do not select boards themselves."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lora_lab.bench.machine import free_memory
from tests import kernel_option, prefill_option, slow_cases, thinning
from tests.relay import APART, close_children, run_apart, transport_of
from tests.transports import Transport, open_transport


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", action="append", default=[], help="board URI; repeat for several boards"
    )
    parser.addoption(
        "--kernels",
        choices=kernel_option.CHOICES,
        default="native",
        help="run these in the native kernels' place",
    )
    parser.addoption(
        "--prefill", default=prefill_option.DEFAULT, metavar="WORKER",
        help="the exact worker that parity tests compare: torch:cuda:0, cuda:0",
    )  # fmt: skip
    parser.addoption(
        "--transport", choices=("emu", "boardd", *APART), help="only over this transport"
    )
    parser.addoption("--relay", help="file descriptor of the pytest that names the tests")
    parser.addoption(
        "--thin", type=int, default=1, metavar="N",
        help=f"of a test with over {thinning.MANY} slow cases, run one of N",
    )  # fmt: skip
    parser.addoption(
        "--soak-seconds", type=float, default=0.0, help="how long test_soak runs [4, a wide bound]"
    )
    parser.addoption(
        "--require-hw", action="store_true", help="missing boards fail instead of skipping"
    )
    parser.addoption(
        "--require-xrt",
        action="store_true",
        help="missing XRT libraries fail instead of skipping",
    )
    parser.addoption(
        "--require-rtl",
        action="store_true",
        help="missing simulated units fail instead of skipping",
    )
    parser.addoption(
        "--require-clients",
        action="store_true",
        help="missing lm-eval or guidellm fail instead of skipping",
    )
    parser.addoption(
        "--require-ray", action="store_true", help="missing ray fails instead of skipping"
    )
    parser.addoption(
        "--require-vllm", action="store_true", help="missing vllm fails instead of skipping"
    )
    parser.addoption(
        "--require-real", action="store_true", help="missing models fail instead of skipping"
    )
    parser.addoption(
        "--vocabularies", metavar="DIR", help="where llama_cpp_python's sources are, for make real"
    )
    parser.addoption(
        "--require-parity",
        action="store_true",
        help="missing torch or transformers fail instead of skipping",
    )
    parser.addoption(
        "--require-tools",
        action="store_true",
        help="missing programs (curl, chromium), memory and disk fail instead of skipping",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keeps what `--kernels` and `--prefill` say where helpers find it. A shell's background jobs
    ignore SIGINT, and so would the programs that tests interrupt."""
    kernel_option.chosen = config.getoption("--kernels")
    prefill_option.chosen = config.getoption("--prefill")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs every test of boards once per transport."""
    if "transport" not in metafunc.fixturenames:
        return
    names: list[str] = ["emu", "boardd", *APART]
    if metafunc.config.getoption("--device"):
        names = ["device"]
    elif metafunc.config.getoption("--transport"):
        names = [metafunc.config.getoption("--transport")]
    marks = {"xrt": [pytest.mark.xrt]}
    params = [pytest.param(name, marks=marks.get(name, [])) for name in names]
    metafunc.parametrize("transport", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """The boards under test."""
    name = str(request.param)
    if name == "xrt":
        request.getfixturevalue("xrt_libraries")
    with open_transport(name, request.config.getoption("--device")) as opened:
        yield opened


@pytest.fixture(scope="session")
def xrt_libraries(pytestconfig: pytest.Config) -> None:
    """The runtime's own libraries, or a visible skip, or a failure with --require-xrt."""
    from lora_host.errors import TransportError
    from lora_host.xrt_environment import find_libraries

    try:
        find_libraries()
    except TransportError as error:
        if pytestconfig.getoption("--require-xrt"):
            pytest.fail(f"--require-xrt, but {error}")
        pytest.skip(str(error))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs items of a transport that needs its own process there."""
    return run_apart(item, nextitem) or None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the transports' processes."""
    close_children(config)


def _is_heavy(item: pytest.Item) -> bool:
    """Whether an item is slow on transports other than emu: marked `light(name=(values), ...)`, it
    has another value of such a parameter."""
    marker = item.get_closest_marker("light")
    if marker is None or transport_of(item) not in APART:
        return False
    params = item.callspec.params  # type: ignore[attr-defined]
    return any(params[name] not in values for name, values in marker.kwargs.items())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = slow_cases.listed()
    for item in items:
        if item.nodeid in listed or _is_heavy(item):
            item.add_marker(pytest.mark.slow)
    kept = thinning.thinned(items, config.getoption("--thin"))
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    if config.getoption("--device"):
        return
    for item in items:
        if "hw" in item.keywords:
            if config.getoption("--require-hw"):
                item.add_marker(pytest.mark.usefixtures("no_board_given"))
            else:
                item.add_marker(pytest.mark.skip(reason="no board given with --device"))


@pytest.fixture
def program(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """The path of a program by its name, or a visible skip, or a failure with --require-tools."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        if pytestconfig.getoption("--require-tools"):
            pytest.fail(f"--require-tools, but {name} is not installed")
        pytest.skip(f"{name} is not installed")

    return find


@pytest.fixture
def large_folder(
    pytestconfig: pytest.Config, tmp_path: Path
) -> Iterator[Callable[[int, int], Path]]:
    """A folder that is deleted after the test, by the bytes of memory and disk that the test needs;
    without them a visible skip, or a failure with --require-tools."""
    folder = tmp_path / "large"

    def make(memory: int, disk: int) -> Path:
        found = {"memory": free_memory(), "disk": shutil.disk_usage(tmp_path).free}
        for name, wanted in (("memory", memory), ("disk", disk)):
            if found[name] < wanted:
                lacks = (
                    f"needs {wanted / 1e9:.0f} GB of {name}, {found[name] / 1e9:.1f} GB are free"
                )
                if pytestconfig.getoption("--require-tools"):
                    pytest.fail(f"--require-tools, but {lacks}")
                pytest.skip(lacks)
        folder.mkdir()
        return folder

    yield make
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def no_board_given() -> None:
    pytest.fail("--require-hw, but no board was given with --device")


@pytest.fixture(scope="session")
def devices(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """URIs of the boards under test; empty means emulated boards."""
    return tuple(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def parity_modules(pytestconfig: pytest.Config) -> tuple[object, object]:
    """(torch, transformers), or a visible skip, or a failure with --require-parity."""
    try:
        import torch
        import transformers
    except ImportError as error:
        if pytestconfig.getoption("--require-parity"):
            pytest.fail(f"--require-parity, but {error.name} is not installed")
        pytest.skip(f"{error.name} is not installed")
    return torch, transformers
