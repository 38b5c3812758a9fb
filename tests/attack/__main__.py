"""Attacks with sockets and files for a while: `python -m tests.attack --seconds 7200 --log FILE`.
One line of JSON a round; `--read FILE` sums a log up."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.attack.campaign import Campaign, names, summary


def main() -> int:
    """0: nothing found; 1: a finding; 2: a wrong argument."""
    known = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    known.add_argument("--seconds", type=float, default=600, help="for all together [600]")
    known.add_argument("--log", type=Path, help="file for the rounds, as JSON [stdout]")
    known.add_argument("--found", type=Path, default=Path("build/attack"),
                       help="folder for inputs with a finding [build/attack]")  # fmt: skip
    known.add_argument("--share", type=float, default=1.0, help="of one core, at most [1]")
    known.add_argument("--seed", type=int, default=0, help="of the first round [0]")
    known.add_argument("--only", action="append", choices=names(), help="repeat for several [all]")
    known.add_argument("--read", type=Path, metavar="LOG", help="sum a log up, attack nothing")
    given = known.parse_args()
    if given.read is not None:
        print(summary(given.read))
        return 0
    campaign = Campaign(given.log, given.found, given.share, given.only or names())
    campaign.run(given.seconds, given.seed)
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
