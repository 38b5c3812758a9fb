"""Steps on boards: rows, the step block, the KV cache, verification, results."""
