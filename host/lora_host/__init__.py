"""The Python side of the boards: overlays, clusters, links, memory and steps, over the C library."""
