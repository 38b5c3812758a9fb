"""Arguments of the public classes, described once: signatures, flags, checks and docs follow."""
