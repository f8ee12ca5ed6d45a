# The rows of src/base/isas.def that are for the architecture we build for:
#   isas               names of the instruction sets, ascending
#   row_names          those, and the names of the features
#   row_flags_NAME     all compiler flags of a row
#   row_isa_NAME       the name of its instruction set; isa_id_NAME: the enumerator of that
#   foreign_names      names of rows for other architectures
set(isas_def ${CMAKE_SOURCE_DIR}/src/base/isas.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${isas_def})

set(architecture ${CMAKE_SYSTEM_PROCESSOR})
if(architecture MATCHES "^(amd64|AMD64)$")
    set(architecture x86_64)
elseif(architecture STREQUAL "arm64")
    set(architecture aarch64)
endif()

file(READ ${isas_def} isas_text)
string(REGEX MATCHALL "\nHT_(ISA|FEATURE)\\([A-Z][^)]*\\)" rows "${isas_text}")
set(isas)
set(row_names)
set(foreign_names)
set(flags_so_far)
foreach(row ${rows})
    string(REGEX REPLACE "^\nHT_(ISA|FEATURE)\\((.*)\\)$" "\\1,\\2" row "${row}")
    string(REGEX REPLACE "[ \n]*,[ \n]*" ";" row "${row}")
    list(GET row 0 kind)
    list(GET row 1 id)
    list(GET row 2 name)
    list(GET row 3 parent) # the architecture, or the instruction set of a feature
    list(GET row -1 flags)
    string(REPLACE "\"" "" flags "${flags}")
    separate_arguments(flags)
    if(kind STREQUAL "ISA" AND parent MATCHES "^(any|${architecture})$")
        list(APPEND flags_so_far ${flags})
        list(APPEND isas ${name})
        set(isa_id_${name} HT_ISA_${id})
        set(isa_of_${id} ${name})
        set(row_isa_${name} ${name})
        set(row_flags_${name} ${flags_so_far})
    elseif(kind STREQUAL "FEATURE" AND DEFINED isa_of_${parent})
        set(row_isa_${name} ${isa_of_${parent}})
        set(row_flags_${name} ${row_flags_${isa_of_${parent}}} ${flags})
    else()
        list(APPEND foreign_names ${name})
        continue()
    endif()
    list(APPEND row_names ${name})
endforeach()
