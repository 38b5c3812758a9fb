"""Names under which another program on this host has prompts."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
