"""The card and the mock server for vrtd count accesses by themselves: they are those that the SDK
says, and a step's are those that the timing model charges."""

from __future__ import annotations

import json
from pathlib import Path

from lora_host.vrtd_mock.process import MockServer
from lora_lab.timing.host_access import step_accesses
from tests.slash import build_card, run_client

# The counts of the card that is preloaded: a step's transfers are inside one page each.
CODE = """
import json, os, struct, sys
from lora_sdk import Engine, SamplingParams
NAMES = ('memory_reads', 'memory_writes', 'register_reads', 'register_writes')
def seen():
    with open(os.environ['CARD_COUNTS'], 'rb') as file:
        return dict(zip(NAMES, struct.unpack('<4Q', file.read())))
def said(engine):
    stats = engine.cluster.stats()
    return {name: getattr(stats, name) for name in (*NAMES, 'doorbells', 'steps')}
with Engine(devices=sys.argv[1:], greedy='host') as engine:
    engine.generate('import os', SamplingParams(max_tokens=2, ignore_eos=True))
    before = seen(), said(engine)
    engine.generate('import os', SamplingParams(max_tokens=20, ignore_eos=True))
    after = seen(), said(engine)
    change = [{name: new[name] - old[name] for name in new} for old, new in zip(before, after)]
    engine.confirm()  # or closing would sum the rest of the weights
    print(json.dumps([*change, said(engine)['doorbells']]))
"""


def test_the_card_counts_the_accesses_that_the_sdk_says(tmp_path: Path) -> None:
    counted = {"LD_PRELOAD": str(build_card(tmp_path)), "CARD_COUNTS": str(tmp_path / "counts")}
    with MockServer(2) as server:
        found = run_client(CODE, server, *server.uris, LORA_LOCK_FOLDER=str(tmp_path), **counted)
        seen, said, doorbells = json.loads(found)
        assert sum(server.starts(board) for board in range(2)) == doorbells
    assert seen == {name: said[name] for name in seen}
    charged, each = step_accesses(), 2 * said["steps"]
    assert said["steps"] >= 20 and said["doorbells"] == each
    assert seen["memory_writes"] == charged.dma_before * each
    assert seen["memory_reads"] == charged.dma_after * each
    assert seen["register_writes"] == charged.writes_before * each
