# Packs a kernel as IP, and for the U280 as .xo: vivado -mode batch -source package.tcl -tclargs PLAN.TCL
# Untried: no vendor's tool has run it. Commands are those of UG835 and UG1393.

proc fail {message} {
    error "lora-fpga: $message"
}

proc new_project {plan} {
    set folder [file join [dict get $plan folder] project]
    create_project -force [dict get $plan name] $folder -part [dict get $plan part]
    add_files -norecurse -fileset sources_1 [dict get $plan sources]
    set_property top [dict get $plan name] [get_filesets sources_1]
    foreach file [dict get $plan constraints] {
        add_files -norecurse -fileset constrs_1 $file
        set_property USED_IN {synthesis out_of_context} [get_files $file]
    }
    update_compile_order -fileset sources_1
}

proc new_core {plan} {
    ipx::package_project -root_dir [file join [dict get $plan folder] ip] -vendor [dict get $plan vendor] \
        -library [dict get $plan library] -taxonomy /KernelIP -import_files -set_current true
    set core [ipx::current_core]
    set_property name [dict get $plan name] $core
    set_property version [dict get $plan version] $core
    set_property display_name [dict get $plan name] $core
    set_property description [dict get $plan title] $core
    return $core
}

# A bus interface that the packager should have found by the names of ports.
proc bus_of {core name} {
    set bus [ipx::get_bus_interfaces -quiet $name -of_objects $core]
    if {[llength $bus] == 0} {
        fail "no bus interface $name: the top has no such ports"
    }
    return $bus
}

proc clocks_and_interrupt {plan core} {
    foreach {name kind} [list [dict get $plan clock] clock [dict get $plan reset] reset \
            [dict get $plan interrupt] interrupt] {
        ipx::infer_bus_interface $name xilinx.com:signal:${kind}_rtl:1.0 $core
    }
    set sensitive [ipx::add_bus_parameter SENSITIVITY [bus_of $core [dict get $plan interrupt]]]
    set_property value LEVEL_HIGH $sensitive
    ipx::associate_bus_interfaces -clock [dict get $plan clock] -reset [dict get $plan reset] $core
    foreach one [dict get $plan interfaces] {
        if {[dict get $one type] in {aximm axis}} {
            bus_of $core [dict get $one name]
            ipx::associate_bus_interfaces -busif [dict get $one name] -clock [dict get $plan clock] $core
        }
    }
}

proc address_block {plan core} {
    set control [dict get $plan control]
    set map [ipx::add_memory_map -quiet $control $core]
    set_property slave_memory_map_ref $control [bus_of $core $control]
    set block [ipx::add_address_block -quiet reg0 $map]
    set_property range [dict get $plan register_bytes] $block
    set_property width 32 $block
    set_property usage register $block
    return $block
}

proc registers {plan core} {
    set block [address_block $plan $core]
    foreach one [dict get $plan registers] {
        set register [ipx::add_register [dict get $one name] $block]
        set_property address_offset [dict get $one offset] $register
        set_property size [dict get $one bits] $register
        set_property access [dict get $one access] $register
        if {[dict get $one port] ne ""} {
            set leads_to [ipx::add_register_parameter ASSOCIATED_BUSIF $register]
            set_property value [dict get $one port] $leads_to
        }
    }
}

proc finish {plan core} {
    set_property sdx_kernel true $core
    set_property sdx_kernel_type rtl $core
    set_property vitis_drc {ctrl_protocol ap_ctrl_hs} $core
    set_property ipi_drc {ignore_freq_hz true} $core
    set_property supported_families {} $core
    set_property auto_family_support_level level_2 $core
    ipx::create_xgui_files $core
    ipx::update_checksums $core
    ipx::check_integrity -kernel $core
    ipx::save_core $core
}

proc object_file {plan} {
    package_xo -force -xo_path [dict get $plan xo] -kernel_name [dict get $plan name] \
        -kernel_xml [dict get $plan kernel_xml] -ip_directory [file join [dict get $plan folder] ip]
}

if {[llength $argv] != 1} {
    fail "expected one argument, the plan; found [llength $argv]"
}
source [lindex $argv 0]
new_project $plan
set core [new_core $plan]
clocks_and_interrupt $plan $core
registers $plan $core
finish $plan $core
if {[dict get $plan xo] ne ""} {
    object_file $plan
}
close_project
