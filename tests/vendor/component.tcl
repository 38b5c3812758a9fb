# component.xml as the packager writes it (IP-XACT 1685-2009), from what was recorded.
proc tag {name text} {
    return "<spirit:$name>[string map {& &amp; < &lt; > &gt;} $text]</spirit:$name>"
}
proc node {name args} {
    return "<spirit:$name>[join $args {}]</spirit:$name>"
}
proc prop {object name {default {}}} {
    return [expr {[info exists ::props($object,$name)] ? $::props($object,$name) : $default}]
}
proc parameters_of {object extra} {
    set rows $extra
    if {[info exists ::parameters($object)]} {
        foreach name $::parameters($object) { lappend rows $name [prop $object,$name VALUE] }
    }
    set text ""
    foreach {name value} $rows { append text [node parameter [tag name $name] [tag value $value]] }
    return [node parameters $text]
}
proc bus_xml {name} {
    lassign $::bus($name) library type master
    set maps ""
    dict for {logical port} $::maps($name) {
        append maps [node portMap [node logicalPort [tag name $logical]] [node physicalPort [tag name $port]]]
    }
    set extra [list]
    foreach parameter {ASSOCIATED_BUSIF ASSOCIATED_RESET} {
        if {[info exists ::associated($name,$parameter)]} {
            lappend extra $parameter [join $::associated($name,$parameter) :]
        }
    }
    set kind "<spirit:busType spirit:vendor=\"xilinx.com\" spirit:library=\"$library\" spirit:name=\"$type\"\
        spirit:version=\"1.0\"/>"
    return [node busInterface [tag name $name] $kind [expr {$master ? "<spirit:master/>" : "<spirit:slave/>"}] \
        [node portMaps $maps] [parameters_of bus:$name $extra]]
}
proc registers_xml {} {
    set text ""
    foreach name $::registers {
        set object register:$name
        append text [node register [tag name $name] [tag addressOffset [prop $object ADDRESS_OFFSET]] \
            [tag size [prop $object SIZE]] [tag access [prop $object ACCESS]] [parameters_of $object {}]]
    }
    return $text
}
proc component_xml {} {
    set buses ""
    foreach name [lsort [array names ::bus]] { append buses [bus_xml $name] }
    set maps ""
    foreach map $::memory_maps {
        append maps [node memoryMap [tag name $map] [node addressBlock [tag name reg0] [tag baseAddress 0] \
            [tag range [prop block:reg0 RANGE]] [tag width [prop block:reg0 WIDTH]] [tag usage [prop block:reg0 USAGE]] \
            [registers_xml]]]
    }
    set files ""
    foreach file $::props(fileset:sources_1,FILES) { append files [node file [tag name src/[file tail $file]]] }
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<spirit:component\
        xmlns:spirit=\"http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009\">[tag vendor [prop core VENDOR]][tag \
        library [prop core LIBRARY]][tag name [prop core NAME]][tag version [prop core VERSION]][node busInterfaces \
        $buses][node memoryMaps $maps][node fileSets [node fileSet [tag name view_fileset] $files]]</spirit:component>"
}
