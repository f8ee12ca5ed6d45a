# The files of targets/ become part of the library, under their names without .json (graph/target.h).
file(GLOB target_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/targets/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${target_files})
set(arrays)
set(rows)
set(number 0)
foreach(file ${target_files})
    cmake_path(GET file STEM name)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND arrays "static const char text_${number}[] = {\n${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", text_${number}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/shipped_targets.c @ONLY CONTENT
"#include \"graph/target.h\"\n
${arrays}
const ht_shipped_target ht_shipped_targets[] = {
${rows}};
const size_t ht_shipped_target_count = sizeof ht_shipped_targets / sizeof ht_shipped_targets[0];\n")
