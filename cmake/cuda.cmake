# The .cu files become part of the library as text: arrays of bytes, since C limits the length of a literal. They are
# compiled for the machine's GPU when a plan is made, so that the build needs no CUDA.
file(GLOB_RECURSE cuda_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernel/*.cu)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cuda_files})
set(arrays)
set(rows)
foreach(file ${cuda_files})
    cmake_path(GET file STEM name)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND arrays "static const char ${name}_text[] = {\n${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", ${name}_text},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cuda_files.c @ONLY CONTENT
"#include \"kernel/cuda/cuda_files.h\"\n
${arrays}
const ht_cuda_file ht_cuda_files[] = {
${rows}};
const size_t ht_cuda_file_count = sizeof ht_cuda_files / sizeof ht_cuda_files[0];\n")
