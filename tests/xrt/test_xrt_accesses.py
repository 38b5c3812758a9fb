"""The process behind XRT that runs the boards counts accesses by itself: they are those that the
SDK says, and a step's are those that the timing model charges."""

from __future__ import annotations

import json

import pytest

from lora_host.xrt_environment import XrtEnvironment
from lora_lab.timing.host_access import step_accesses
from tests.xrt_rig import said

pytestmark = pytest.mark.xrt

CODE = """
import json, socket
from collections import Counter
from lora_sdk import Engine, SamplingParams
NAMES = ("memory_reads", "memory_writes", "register_reads", "register_writes")
def seen():
    total = Counter()
    for board in range(2):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ["LORA_EMULATION_DIR"] + "/cluster.sock")
            connection.sendall(b"COUNTS %d" % board)
            total.update(json.loads(connection.recv(4096)))
    return total
def told(engine):
    stats = engine.cluster.stats()
    return {name: getattr(stats, name) for name in (*NAMES, "doorbells", "steps")}
with Engine(devices=["xrt:0", "xrt:1"], greedy="host") as engine:
    engine.generate("import os", SamplingParams(max_tokens=2, ignore_eos=True))
    before = seen(), told(engine)
    engine.generate("import os", SamplingParams(max_tokens=20, ignore_eos=True))
    after = seen(), told(engine)
    print(json.dumps([{n: new[n] - old[n] for n in new} for old, new in zip(before, after)]))
"""


def test_the_boards_count_the_accesses_that_the_sdk_says() -> None:
    with XrtEnvironment(2) as place:
        seen, told = json.loads(said(place, CODE))
    assert seen == {name: told[name] for name in seen}
    charged, each = step_accesses(), 2 * told["steps"]
    assert told["steps"] >= 20 and told["doorbells"] == each
    assert seen["memory_writes"] == charged.dma_before * each
    assert seen["memory_reads"] == charged.dma_after * each
    assert seen["register_writes"] == charged.writes_before * each
