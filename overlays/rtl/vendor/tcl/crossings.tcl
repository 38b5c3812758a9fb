# Bounds on paths between clocks, by cell (crossings.yaml), and the floorplan: a hook of the implementation,
# before opt_design. A cell that is nowhere found is an error: synthesis may have renamed it, and a path
# without a bound looks like one that is met. Untried: no vendor's tool has run it.
# No set_clock_groups and no set_false_path between these clocks: they would take these bounds away.

# Cells of a module in the kernel: others' IP may have modules of the same name.
proc cells_of {module} {
    set found [get_cells -quiet -hierarchical \
        -filter "ORIG_REF_NAME == $module || REF_NAME == $module || REF_NAME =~ ${module}__*"]
    set found [lsearch -all -inline -glob $found "*/lora_ctrl*/kernel/*"]
    if {[llength $found] == 0} {
        error "lora-fpga: no cell of module $module in the kernel: its crossings have no bounds"
    }
    return $found
}

# Registers of a cell, bits and memories; none where synthesis has taken them away with what they were for.
# Brackets in names are no patterns to get_cells.
proc registers_of {cell name} {
    return [get_cells -quiet "$cell/${name}_reg*"]
}

proc period_at {cell pin} {
    return [get_property PERIOD [lindex [get_clocks -of_objects [get_pins "$cell/$pin"]] 0]]
}

# What drives the first flop of a synchronizer: a flop, with nothing between.
proc drivers_of {flops} {
    set nets [get_nets -segments -of_objects [get_pins -of_objects $flops -filter {REF_PIN_NAME == D}]]
    return [get_cells -of_objects [get_pins -leaf -of_objects $nets -filter {DIRECTION == OUT}]]
}

# Both ends of a path, or neither: then the path is not there.
proc both {row cell from to} {
    if {([llength $from] == 0) != ([llength $to] == 0)} {
        error "lora-fpga: $cell: [llength $from] of [dict get $row from] and [llength $to] of\
            [dict get $row to] found: this crossing of [dict get $row cell] cannot be bounded"
    }
    return [expr {[llength $to] > 0}]
}

proc bound_delay {row} {
    set bounded 0
    foreach cell [cells_of [dict get $row cell]] {
        set to [registers_of $cell [dict get $row to]]
        if {[dict get $row from] eq "driver"} {
            set from [expr {[llength $to] ? [drivers_of $to] : {}}]
        } else {
            set from [registers_of $cell [dict get $row from]]
        }
        if {[both $row $cell $from $to]} {
            set_max_delay -datapath_only -from $from -to $to [period_at $cell [dict get $row below]]
            incr bounded
        }
    }
    return $bounded
}

# `to` is the begin of the synchronizers' instances: pointers[3].there.
proc bound_spread {row} {
    set bounded 0
    foreach cell [cells_of [dict get $row cell]] {
        set from [registers_of $cell [dict get $row from]]
        set to [get_cells -quiet "$cell/*[dict get $row to]/first_reg"]
        if {[both $row $cell $from $to]} {
            set_bus_skew -from $from -to $to [period_at $cell [dict get $row below]]
            incr bounded
        }
    }
    return $bounded
}

proc cut_reset {row} {
    set bounded 0
    foreach cell [cells_of [dict get $row cell]] {
        foreach name [dict get $row to] {
            set flops [registers_of $cell $name]
            if {[llength $flops] > 0} {
                set_false_path -to [get_pins -of_objects $flops -filter {REF_PIN_NAME == PRE}]
                incr bounded
            }
        }
    }
    return $bounded
}

proc place {instance region} {
    set found [get_cells -quiet -hierarchical -filter "NAME =~ */kernel/$instance"]
    if {[llength $found] != 1} {
        error "lora-fpga: [llength $found] cells $instance found, one expected: the floorplan names it"
    }
    set_property USER_SLR_ASSIGNMENT $region $found
}

proc constrain {plan} {
    foreach row [dict get $plan crossings] {
        switch [dict get $row kind] {
            delay { set bounded [bound_delay $row] }
            spread { set bounded [bound_spread $row] }
            cut { set bounded [cut_reset $row] }
            default { error "lora-fpga: no bound of kind [dict get $row kind]" }
        }
        if {$bounded == 0} {
            error "lora-fpga: no register [dict get $row to] in any [dict get $row cell]: no bound was set"
        }
    }
    dict for {instance region} [dict get $plan floorplan] {
        place $instance $region
    }
}
