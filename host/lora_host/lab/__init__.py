"""Lab tools: lists of boards, tests of links, memory and units, and checks of the computer."""
