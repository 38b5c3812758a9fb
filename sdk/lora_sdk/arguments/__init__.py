"""Arguments of the public classes, described once. Signatures, flags, checks and docs are derived
from the descriptions."""
