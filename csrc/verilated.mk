# The compiler of the C++ that Verilator writes: clang takes a third to a half of g++'s time for it, and what it makes
# runs faster.
CXX_OF_MODELS ?= $(if $(shell command -v clang++),clang++,$(CXX))
