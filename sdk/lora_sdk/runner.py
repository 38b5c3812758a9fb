"""Puts a model on boards and runs steps."""

from __future__ import annotations

from lora_sdk.step import KvOp, Row, StepResult

__all__ = ["KvOp", "Row", "StepResult"]
