"""How a model lies on boards: partition, topology, placement. Pure functions, nothing is loaded."""
