"""`lora doctor`: what this computer lacks for real boards."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lora_host.lab.doctor import MISSING, examine
from lora_sdk.cli.folding import show

EXAMPLES = """\b
Examples:
  lora doctor
  lora doctor --json
"""


@click.command("doctor", epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def doctor(as_json: bool) -> None:
    """Check drivers, runtimes, rights, device nodes, shells and limits. For anything missing, print
    the command that fixes it. The exit code is 1 if something is missing."""
    findings = examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for it in findings:
            show(f"{it.state:<8} {it.thing}: {it.found}")
            if it.cure:
                show(f"         -> {it.cure}")
    if any(finding.state == MISSING for finding in findings):
        raise SystemExit(1)
