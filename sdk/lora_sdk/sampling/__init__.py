"""From logits to a token: penalties, temperature, top-k, top-p, min-p, noise keyed by position.

Every function here is a pure function of the logits, the parameters, the seed, the sample index and
the position, so a token does not depend on its place in a batch, on speculation or on boards.
"""

from lora_sdk.sampling.params import SamplingParams
from lora_sdk.sampling.sampler import Sampler

__all__ = ["Sampler", "SamplingParams"]
