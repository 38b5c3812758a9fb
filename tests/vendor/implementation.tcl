# In the place of a placed design's commands: tclsh implementation.tcl DESIGN SCRIPT. DESIGN has a line a cell: name
# and module, or name and FLOP, its clock and what drives its D. Bounds are printed. As in Vivado a `*` of a name does
# not pass `/`, and brackets in it are no patterns.
array set module {}
array set clock {}
array set driver {}
proc cell {name ref} { set ::module($name) $ref }
proc flop {name its_clock {from {}}} {
    set ::module($name) FLOP
    set ::clock($name) $its_clock
    set ::driver($name) $from
}
proc matches {pattern name} {
    set exact [string map {\[ \\\[ \] \\\]} $pattern]
    return [expr {[llength [split $pattern /]] == [llength [split $name /]] && [string match $exact $name]}]
}
proc get_cells args {
    set quiet [expr {"-quiet" in $args}]
    set found [list]
    if {"-hierarchical" in $args} {
        set filter [lindex $args [expr {[lsearch $args -filter] + 1}]]
        foreach name [lsort [array names ::module]] {
            foreach term [split [string map {|| \n} $filter] \n] {
                lassign [string trim $term] property operator value
                set its [dict get [dict create NAME $name REF_NAME $::module($name) ORIG_REF_NAME \
                    [lindex [split $::module($name) _] 0]] $property]
                if {$operator eq "==" ? $its eq $value : [string match $value $its]} { lappend found $name; break }
            }
        }
    } elseif {"-of_objects" in $args} {
        foreach pin [lindex $args [expr {[lsearch $args -of_objects] + 1}]] { lappend found [file dirname $pin] }
    } else {
        foreach name [lsort [array names ::module]] { if {[matches [lindex $args end] $name]} { lappend found $name } }
    }
    if {![llength $found] && !$quiet} { error "no cells: $args" }
    return $found
}
proc get_pins args {
    set of [lsearch $args -of_objects]
    if {$of < 0} { return [lindex $args 0] }
    set found [list]
    foreach object [lindex $args [expr {$of + 1}]] {
        if {[regexp {^net:(.*)} $object all from]} { lappend found $from/Q; continue }
        lassign [lindex $args [expr {[lsearch $args -filter] + 1}]] name operator pin
        lappend found $object/$pin
    }
    return $found
}
proc get_nets args {
    set found [list]
    foreach pin [lindex $args end] { lappend found net:$::driver([file dirname $pin]) }
    return $found
}
proc get_clocks args { return [list clock:[file tail [lindex $args end]]] }
proc get_property {name object} { return PERIOD([string range $object 6 end]) }
foreach name {set_max_delay set_bus_skew set_false_path set_property} {
    proc $name args [string map [list @NAME@ $name] { puts "@NAME@ $args" }]
}
source [lindex $argv 0]
source [lindex $argv 1]
if {[catch {constrain $plan} said]} {
    puts stderr $said
    exit 1
}
