"""From logits to a token: penalties, temperature, top-k, top-p, min-p, counter-based randomness.

Every function is pure: the result depends only on the logits, the parameters, the seed, the sample
index and the position. So a token does not depend on batching, speculation or the number of boards.
"""

from lora_sdk.sampling.beam_params import BeamSearchParams, params_from_mapping
from lora_sdk.sampling.params import SamplingParams
from lora_sdk.sampling.sampler import Sampler

__all__ = ["BeamSearchParams", "Sampler", "SamplingParams", "params_from_mapping"]
