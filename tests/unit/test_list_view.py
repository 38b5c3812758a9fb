"""`lora list --watch`: what a board's line says of its sensors, links and holder."""

from __future__ import annotations

from lora_host.lab.inventory import BoardView, PortView
from lora_sdk.cli.list_view import table

BUSY = BoardView(
    "xrt:0000:3b:00.1", "u280",
    links=[
        PortView(0, 0x10F, True, {"times down": 0, "frames with errors": 3}),
        PortView(1, 0x000, False, {"times down": 2, "frames with errors": 0}),
    ],
    sensors={"fpga_temp": "41.5 C", "hbm_temp": "63 C", "power": "75.5 W", "12v_aux": "12.1 V"},
    holder=4711, holder_name="python",
)  # fmt: skip
BARE = BoardView("slash:0000:21:00.0", "v80", problem="the daemon does not answer")


def test_a_line_has_the_hottest_place_the_power_link_errors_and_the_holder() -> None:
    head, line = table([BUSY])
    starts = [head.index(name) for name in ("board", "kind", "temperature", "power", "links",
                                            "link errors", "held by")]  # fmt: skip
    cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    assert cells == [
        "xrt:0000:3b:00.1", "u280", "63 C", "75.5 W", "1 of 2 up",
        "0: frames with errors 3, 1: times down 2", "4711 (python)",
    ]  # fmt: skip


def test_what_is_not_known_is_a_dash_and_problems_follow() -> None:
    lines = table([BUSY, BARE])
    assert lines[2].split() == ["slash:0000:21:00.0", "v80", "-", "-", "-", "-", "nobody"]
    assert "the board's driver does not give it" in lines[3]
    assert lines[4:] == ["slash:0000:21:00.0: the daemon does not answer"]
