"""A mock server for vrtd, the V80's daemon: implements its socket protocol and the board in tests.

It runs the same emulated cluster as `emu:`, including links. Device memory is a sparse memory file
that clients access by descriptors. The BARs are memory files that clients map. A thread polls the
control word, runs the emulated board and updates its status. `process.MockServer` starts one."""
