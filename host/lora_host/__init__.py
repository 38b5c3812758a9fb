"""The Python side of the boards: overlays, clusters, links, memory, steps, over the C library."""
