# The compiler of the C++ that Verilator writes: clang takes a third to a half of g++'s time for it, and what it makes
# runs faster.
CXX_OF_MODELS ?= $(if $(shell command -v clang++),clang++,$(CXX))
# Its instructions, where it knows them: SSE 4.2 and before. An older processor needs `PROCESSOR=`.
PROCESSOR ?= $(shell $(CXX_OF_MODELS) -march=x86-64-v2 -E -x c /dev/null >/dev/null 2>&1 && echo -march=x86-64-v2)
SIGNS     := $(ROOT)/csrc/verilated_signs.hpp
MODEL_FLAGS = $(PROCESSOR) -include $(SIGNS)
