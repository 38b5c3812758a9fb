"""A mock server for vrtd, the V80's daemon: speaks its socket protocol and is the board in tests.

Behind it runs the same emulated cluster as behind `emu:`, links included. Device memory is a sparse
memory file that clients reach by descriptors, the BARs are memory files that they map; a thread
looks at the control word, runs the emulated board, and reports. `process.MockServer` starts one."""
