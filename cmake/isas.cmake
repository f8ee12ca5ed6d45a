# The rows of src/base/isas.def:
#   isas               names of the instruction sets of the architecture we build for, ascending
#   foreign_isas       those of other architectures, for which we can plan
#   row_names          those that we build for: isas, and the names of their features
#   foreign_features   names of features of foreign_isas
#   row_flags_NAME     all compiler flags of a row; of a foreign one, those of a build that only plans
#   row_isa_NAME       the name of its instruction set; isa_id_NAME: the enumerator of that
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
set(foreign_isas)
set(row_names)
set(foreign_features)
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
    if(kind STREQUAL "ISA")
        set(isa_id_${name} HT_ISA_${id})
        set(isa_of_${id} ${name})
        set(row_isa_${name} ${name})
    endif()
    if(kind STREQUAL "ISA" AND parent MATCHES "^(any|${architecture})$")
        list(APPEND flags_so_far ${flags})
        list(APPEND isas ${name})
        list(APPEND row_names ${name})
        set(row_flags_${name} ${flags_so_far})
    elseif(kind STREQUAL "ISA")
        list(APPEND foreign_isas ${name})
        set(row_flags_${name} -DHT_PLAN_ONLY -Wno-psabi) # vectors that no register of ours holds are never passed
    elseif(isa_of_${parent} IN_LIST isas)
        list(APPEND row_names ${name})
        set(row_isa_${name} ${isa_of_${parent}})
        set(row_flags_${name} ${row_flags_${isa_of_${parent}}} ${flags})
    else()
        list(APPEND foreign_features ${name})
    endif()
endforeach()
