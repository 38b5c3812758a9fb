# What a region of the V80 needs that has links: the vendor's Aurora core for each, and a decoupler between the kernel and
# the static part: vivado -mode batch -source region_parts.tcl -tclargs PLAN.TCL
# Untried: no vendor's tool has run it. Commands are those of UG835, options of PG074 and PG374.

proc fail {message} {
    error "lora-fpga: $message"
}

proc parts_project {plan} {
    set folder [file join [dict get $plan folder] region]
    create_project -force region $folder -part [dict get $plan part]
}

# Sends and receives by one clock; flow control, as a receiver cannot wait; the core keeps its own shared logic.
proc link_core {plan port} {
    set link [dict get $plan link]
    set name lora_aurora_$port
    create_ip -name aurora_64b66b -vendor xilinx.com -library ip -module_name $name
    set_property -dict [list \
        CONFIG.C_AURORA_LANES [dict get $link lanes] \
        CONFIG.C_LINE_RATE [dict get $link rate] \
        CONFIG.C_REFCLK_FREQUENCY [dict get $link reference] \
        CONFIG.C_INIT_CLK 100 \
        CONFIG.dataflow_config Duplex \
        CONFIG.interface_mode [expr {[dict get $link framing] ? "Framing" : "Streaming"}] \
        CONFIG.flow_mode Immediate_NFC \
        CONFIG.crc_mode [expr {[dict get $link framing] ? "true" : "false"}] \
        CONFIG.drp_mode Native \
        CONFIG.SupportLevel 1] [get_ips $name]
    generate_target all [get_ips $name]
}

# One interface of the decoupler. MODE is the kernel's side.
proc decoupled {one number} {
    set signals [list]
    dict for {signal width} [dict get $one widths] {
        lappend signals $signal [list PRESENT 1 WIDTH $width]
    }
    set row [list ID $number VLNV xilinx.com:interface:[dict get $one type]_rtl:1.0 MODE [dict get $one mode]]
    if {[dict get $one type] eq "aximm"} {
        lappend row PROTOCOL [expr {[dict exists $one widths AWLEN] ? "axi4" : "axi4lite"}]
    }
    return [list {*}$row SIGNALS $signals]
}

# The interrupt is a signal, and low while decoupled.
proc decoupler {plan} {
    set rows [list]
    set number 0
    foreach one [dict get $plan interfaces] {
        if {[dict get $one type] in {aximm axis}} {
            lappend rows [dict get $one name] [decoupled $one $number]
            incr number
        }
    }
    set interrupt [list [dict get $plan interrupt] {DIRECTION out WIDTH 1 DECOUPLED_VALUE 0}]
    lappend rows signals [list ID $number SIGNALS $interrupt]
    create_ip -name dfx_decoupler -vendor xilinx.com -library ip -module_name lora_decoupler
    set_property -dict [list CONFIG.ALL_PARAMS [list \
        HAS_AXI_LITE 0 HAS_SIGNAL_CONTROL 1 HAS_SIGNAL_STATUS 1 INTF $rows]] [get_ips lora_decoupler]
    generate_target all [get_ips lora_decoupler]
}

if {[llength $argv] != 1} {
    fail "expected one argument, the plan; found [llength $argv]"
}
source [lindex $argv 0]
parts_project $plan
foreach port [dict get $plan link ports] {
    link_core $plan $port
}
decoupler $plan
close_project
