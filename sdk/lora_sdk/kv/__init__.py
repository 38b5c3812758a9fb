"""K and V of sequences: arenas of pages, tables, prefixes, transfer, host memory."""
