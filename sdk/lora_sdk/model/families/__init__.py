"""One file a family: what its config.json says, and where its tensors lie."""
