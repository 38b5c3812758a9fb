"""What the option `--kernels` of pytest names in the native kernels' place."""

from __future__ import annotations

CHOICES = ("native", "rtl")
chosen = "native"
