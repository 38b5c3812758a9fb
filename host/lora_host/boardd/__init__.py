"""The board daemon: serves a host's boards to other hosts and processes (docs/boardd.md)."""
