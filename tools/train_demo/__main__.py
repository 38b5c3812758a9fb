"""Command line: `python -m tools.train_demo --out models` trains and writes all demo models."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from .evaluate import evaluate_and_write
from .notice import write_notice
from .optim import Budget
from .pipeline import STAGES, run_stages
from .plans import SMOKE_STEPS, STEPS, Plans, smoke_plans


def parse_pairs(pairs: list[str]) -> dict[str, float]:
    """Parse items such as `target=30`."""
    parsed = {}
    for pair in pairs:
        stage, separator, value = pair.partition("=")
        if stage not in STAGES or not separator:
            raise SystemExit(f"{pair}: expected STAGE=NUMBER with a stage of {', '.join(STAGES)}")
        parsed[stage] = float(value)
    return parsed


def build_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(prog="train_demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder of the models")
    parser.add_argument("--stages", nargs="*", choices=list(STAGES), default=list(STAGES))
    parser.add_argument(
        "--steps", action="append", default=[], metavar="STAGE=N", help="steps of a stage"
    )
    parser.add_argument(
        "--minutes",
        action="append",
        default=[],
        metavar="STAGE=MIN",
        help="fit a stage into this time instead of a number of steps",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds")
    parser.add_argument(
        "--resume", action="store_true", help="continue training the EAGLE-3 head in --out"
    )
    parser.add_argument("--no-evaluate", action="store_true")
    return parser


def build_budgets(options: argparse.Namespace) -> dict[str, Budget]:
    """Budget of every stage from the options."""
    steps = dict(SMOKE_STEPS if options.smoke else STEPS)
    steps.update({stage: int(value) for stage, value in parse_pairs(options.steps).items()})
    budgets = {stage: Budget(count) for stage, count in steps.items()}
    for stage, minutes in parse_pairs(options.minutes).items():
        budgets[stage] = Budget(None, minutes)
    return budgets


def main(arguments: list[str] | None = None) -> None:
    """Run the requested stages, then measure the results."""
    options = build_parser().parse_args(arguments)
    plans = smoke_plans() if options.smoke else Plans()
    plans = replace(plans, resume=options.resume)
    run_stages(options.stages, plans, build_budgets(options), options.out, options.threads)
    write_notice(options.out)
    if not options.no_evaluate:
        evaluate_and_write(options.out, plans)


if __name__ == "__main__":
    main()
