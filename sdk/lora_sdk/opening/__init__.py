"""From options to a model on boards."""
