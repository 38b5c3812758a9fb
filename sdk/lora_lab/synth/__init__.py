"""Model folders of published shapes with random weights."""
