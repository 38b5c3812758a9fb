"""Command lines: `lora-run` writes text, `lora` does everything else."""
