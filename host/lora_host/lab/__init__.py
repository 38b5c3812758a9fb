"""What a lab needs beside running models: locks, lists of boards, checks of links, memory and
units, and of the computer itself."""
