"""lora_lab: the laboratory. Modelled time, designs, speculation's tables, benchmarks, faults.

It imports the product, lora_sdk, and nothing of the product needs it."""
