"""`lora serve`: the engine behind OpenAI's HTTP protocol."""
