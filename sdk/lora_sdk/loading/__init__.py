"""A model's weights into the boards' banks."""
