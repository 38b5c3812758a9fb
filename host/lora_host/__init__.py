"""Python host side of the boards, over the C library: overlays, clusters, links, memory, steps."""
