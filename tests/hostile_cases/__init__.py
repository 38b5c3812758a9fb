"""Hostile input made by hand: a row per kind, with the command that meets it and a part of the one
line that must be the outcome. The modules are by format."""
