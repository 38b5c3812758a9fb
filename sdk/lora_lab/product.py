"""What the product asks for by name: lora_sdk.cli.laboratory."""

from lora_lab.synth.folder import synthesize
from lora_lab.timing.beams import beam_time_lines, beam_times
from lora_lab.timing.planned import token_lines, token_times
from lora_lab.timing.run import time_engine

__all__ = [
    "beam_time_lines",
    "beam_times",
    "synthesize",
    "time_engine",
    "token_lines",
    "token_times",
]
