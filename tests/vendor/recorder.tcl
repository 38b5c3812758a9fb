# Recorded in the place of Vivado's commands: tclsh recorder.tcl SCRIPT ARGUMENTS. A command takes the options that
# UG835 and UG1393 give it, objects must exist, and each call is a line of RECORD. The packager finds interfaces by
# the names of the top's ports, as Vivado does, and writes component.xml from what it was told.
set record [open $::env(RECORD) a]
array set options {
    create_project {-force -part:} add_files {-norecurse -fileset:} update_compile_order {-fileset:}
    package_xo {-force -xo_path: -kernel_name: -kernel_xml: -ip_directory:}
    close_project {} get_files {-quiet} get_filesets {-quiet} get_runs {-quiet}
    ipx::package_project {-root_dir: -vendor: -library: -taxonomy: -import_files -set_current:}
    ipx::get_bus_interfaces {-quiet -of_objects:} ipx::infer_bus_interface {} ipx::add_bus_parameter {}
    ipx::associate_bus_interfaces {-busif: -clock: -reset:} ipx::add_memory_map {-quiet}
    ipx::add_address_block {-quiet} ipx::add_register {} ipx::add_register_parameter {}
    ipx::create_xgui_files {} ipx::update_checksums {} ipx::check_integrity {-kernel} ipx::save_core {}
    ipx::current_core {} set_property {-dict} create_ip {-name: -vendor: -library: -version: -module_name: -dir:}
    get_ips {-quiet} generate_target {-force}
}
namespace eval ipx {}
namespace eval as_ipx {}
array set props {}
set objects [dict create]

proc noted {name arguments} {
    set line [list]
    foreach one [linsert $arguments 0 $name] {
        lappend line [string map {\\ \\\\ \t \\t \n \\n} $one]
    }
    puts $::record [join $line \t]
}
# (values of options, other arguments)
proc parsed {name arguments} {
    set values [dict create]
    set rest [list]
    for {set i 0} {$i < [llength $arguments]} {incr i} {
        set one [lindex $arguments $i]
        if {![regexp {^-[a-z_]+$} $one]} {
            lappend rest $one
        } elseif {$one in $::options($name)} {
            dict set values $one 1
        } elseif {"$one:" in $::options($name)} {
            dict set values $one [lindex $arguments [incr i]]
        } else {
            error "$name: unknown option $one"
        }
    }
    return [list $values $rest]
}
proc made {handle} {
    dict set ::objects $handle 1
    return $handle
}
proc known {handle} {
    if {![dict exists $::objects $handle]} { error "no object $handle" }
}
foreach name [array names options] {
    proc ::$name args [string map [list @NAME@ $name] {
        noted @NAME@ $args
        lassign [parsed @NAME@ $args] values rest
        return [as_@NAME@ $values $rest]
    }]
}
proc as_create_project {values rest} {
    if {![dict exists $values -part] || [llength $rest] != 2} { error "create_project: name, folder and -part expected" }
    foreach fileset {sources_1 constrs_1} { made fileset:$fileset }
    return [made project]
}
proc as_add_files {values rest} {
    foreach file [lindex $rest 0] {
        if {![file isfile $file]} { error "add_files: no file $file" }
        made file:$file
        lappend ::props(fileset:[dict get $values -fileset],FILES) $file
    }
}
proc as_update_compile_order {values rest} {}
proc as_close_project {values rest} { dict unset ::objects project }
proc found {kind values rest} {
    set handle $kind:[lindex $rest 0]
    if {[dict exists $::objects $handle]} { return $handle }
    if {[dict exists $values -quiet]} { return {} }
    error "no $kind [lindex $rest 0]"
}
proc as_get_files {values rest} { return [found file $values $rest] }
proc as_get_filesets {values rest} { return [found fileset $values $rest] }
proc as_get_runs {values rest} { return [found run $values $rest] }
proc as_set_property {values rest} {
    if {[dict exists $values -dict]} {
        lassign $rest pairs object
        if {[llength $rest] != 2} { error "set_property: a list and an object expected, $rest found" }
        foreach {name value} $pairs { as_set_property {} [list $name $value $object] }
        return
    }
    lassign $rest name value object
    if {[llength $rest] != 3} { error "set_property: name, value and object expected, $rest found" }
    known $object
    if {[info exists ::core_of($object)] &&
            [string range $name 7 end] ni $::cores($::core_of($object))} {
        error "set_property: $::core_of($object) has no $name"
    }
    set ::props($object,[string toupper $name]) $value
}
proc as_ipx::current_core {values rest} { known core; return core }

# Cores of the vendor's catalogue that scripts here make, and the options that they have.
array set cores {
    aurora_64b66b {C_AURORA_LANES C_LINE_RATE C_REFCLK_FREQUENCY C_INIT_CLK dataflow_config interface_mode flow_mode
                   crc_mode drp_mode SupportLevel}
    dfx_decoupler {ALL_PARAMS}
}
proc as_create_ip {values rest} {
    known project
    if {![info exists ::cores([dict get $values -name])]} { error "create_ip: no core [dict get $values -name]" }
    set ::core_of([made ip:[dict get $values -module_name]]) [dict get $values -name]
}
proc as_get_ips {values rest} { return [found ip $values $rest] }
proc as_generate_target {values rest} {
    lassign $rest target core
    known $core
    if {$target ne "all"} { error "generate_target: $target" }
}

proc top_ports {} {
    set top $::props(fileset:sources_1,TOP)
    foreach file $::props(fileset:sources_1,FILES) {
        set stream [open $file]
        set text [read $stream]
        close $stream
        set begin [string first "\nmodule $top (" $text]
        if {$begin < 0} { continue }
        set ports [list]
        foreach line [split [string range $text $begin [string first "\n);" $text $begin]] \n] {
            lappend ports {*}[regexp -inline {(input|output) +wire logic +(?:\[(\d+):0\] +)?(\w+)} $line]
        }
        return $ports
    }
    error "no source has the top $top"
}
proc as_ipx::package_project {values rest} {
    set ::root [dict get $values -root_dir]
    set ::props(core,VENDOR) [dict get $values -vendor]
    set ::props(core,LIBRARY) [dict get $values -library]
    made core
    set ports [top_ports]
    foreach {all way high port} $ports { set ::way($port) $way }
    foreach {all way high port} $ports {
        if {[regexp {^(\w+)_awaddr$} $port all base]} {
            inferred $base aximm [expr {$way eq "output"}]
        } elseif {[regexp {^(\w+)_tdata$} $port all base]} {
            inferred $base axis [expr {$way eq "output"}]
        }
    }
}
proc inferred {base type master} {
    made bus:$base
    set ::bus($base) [list interface $type $master]
    foreach port [lsort [array names ::way ${base}_*]] {
        set logical [string toupper [string range $port [string length ${base}_] end]]
        dict set ::maps($base) $logical $port
    }
}
proc as_ipx::infer_bus_interface {values rest} {
    lassign $rest port vlnv core
    known $core
    if {![info exists ::way($port)]} { error "infer_bus_interface: the top has no port $port" }
    if {![regexp {^xilinx.com:signal:(clock|reset|interrupt)_rtl:1.0$} $vlnv all type]} { error "no interface $vlnv" }
    made bus:$port
    set ::bus($port) [list signal $type [expr {$::way($port) eq "output"}]]
    set ::maps($port) [dict create [dict get {clock CLK reset RST interrupt INTERRUPT} $type] $port]
}
proc as_ipx::get_bus_interfaces {values rest} { return [found bus $values $rest] }
proc as_ipx::add_bus_parameter {values rest} {
    lassign $rest name bus
    known $bus
    lappend ::parameters($bus) $name
    return [made $bus,$name]
}
proc as_ipx::associate_bus_interfaces {values rest} {
    set clock [dict get $values -clock]
    known bus:$clock
    foreach {option parameter} {-busif ASSOCIATED_BUSIF -reset ASSOCIATED_RESET} {
        if {[dict exists $values $option]} {
            known bus:[dict get $values $option]
            lappend ::associated($clock,$parameter) [dict get $values $option]
        }
    }
}
proc as_ipx::add_memory_map {values rest} { lappend ::memory_maps [lindex $rest 0]; return [made map:[lindex $rest 0]] }
proc as_ipx::add_address_block {values rest} {
    known [lindex $rest 1]
    return [made block:[lindex $rest 0]]
}
proc as_ipx::add_register {values rest} {
    lassign $rest name block
    known $block
    if {[dict exists $::objects register:$name]} { error "register $name: twice" }
    lappend ::registers $name
    return [made register:$name]
}
proc as_ipx::add_register_parameter {values rest} {
    lassign $rest name register
    known $register
    lappend ::parameters($register) $name
    return [made $register,$name]
}
proc as_ipx::create_xgui_files {values rest} {}
proc as_ipx::update_checksums {values rest} {}
proc as_ipx::check_integrity {values rest} {}
source [file join [file dirname [info script]] component.tcl]
proc as_ipx::save_core {values rest} {
    file mkdir $::root
    set stream [open [file join $::root component.xml] w]
    puts $stream [component_xml]
    close $stream
}
proc as_package_xo {values rest} {
    if {![file isfile [file join [dict get $values -ip_directory] component.xml]]} { error "package_xo: no packed IP" }
    file copy -force [dict get $values -kernel_xml] [dict get $values -xo_path]
}
if {[info exists ::env(RUNS)]} { foreach run $::env(RUNS) { made run:$run } }

set script [lindex $argv 0]
set argv [lrange $argv 1 end]
set argc [llength $argv]
if {[catch {source $script} said]} {
    puts stderr "ERROR: $said"
    exit 1
}
close $record
