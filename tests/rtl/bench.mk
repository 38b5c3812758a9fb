# What the benches of simulated modules share. One names BUILD, its folder, then includes this. Needs Verilator 5.006 or
# later, gcc and g++.
ROOT  := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))../..)
RTL   ?= $(ROOT)/overlays/rtl
PARTS ?= $(BUILD)# what does not depend on the hardware source
CC    ?= gcc
VERILATOR ?= verilator
include $(ROOT)/csrc/verilated.mk
OPT   ?= -O1
SUPPORT = $(shell $(VERILATOR) --getenv VERILATOR_ROOT)/include
# Registers without a value begin with random bits (the bench asks for them).
VFLAGS := --cc -O3 --x-assign unique --x-initial unique -Wall -Wno-UNUSEDSIGNAL -Wno-UNUSEDPARAM
# C++ of a bench; the simulator's headers are not ours to warn of.
BENCH  = $(CXX) -std=c++17 $(OPT) -Wall -Wextra -isystem $(SUPPORT) -isystem $(SUPPORT)/vltstd
RUNTIME := $(addprefix $(PARTS)/runtime/,verilated.o verilated_threads.o verilated_dpi.o)

.DEFAULT_GOAL := all
.PHONY: all clean

$(RUNTIME): %.o:
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -fPIC -w -isystem $(SUPPORT) -isystem $(SUPPORT)/vltstd -c $(SUPPORT)/$(*F).cpp -o $@

# $(eval $(call model,PLACE,CLASS,TOP,SOURCES)): the module TOP as the class CLASS, $(BUILD)/PLACE/CLASS__ALL.a.
define model
$(BUILD)/$(1)/$(2)__ALL.a: $(4)
	@mkdir -p $$(@D)
	$$(VERILATOR) $$(VFLAGS) --Mdir $$(@D) --prefix $(2) --top-module $(3) $(4)
	$$(MAKE) -C $$(@D) -f $(2).mk CXX="$(CXX_OF_MODELS)" OPT_FAST="$$(OPT)" OPT_SLOW="-O0" $(2)__ALL.a
endef

clean:
	rm -rf $(BUILD)
