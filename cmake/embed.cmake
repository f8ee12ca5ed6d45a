# embed_texts(NAME HEADER TYPE FILE...): files become part of the library as text, under their names without folder and
# ending: NAME.c defines `const TYPE ht_NAME[]`, rows of name and text, and ht_NAME's count (HEADER declares both). The
# texts are arrays of bytes, since C limits the length of a literal.
function(embed_texts name header type)
    set(arrays)
    set(rows)
    set(number 0)
    foreach(file ${ARGN})
        cmake_path(GET file STEM stem)
        file(READ ${file} bytes HEX)
        string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
        string(APPEND arrays "static const char text_${number}[] = {\n${bytes}0};\n")
        string(APPEND rows "    {\"${stem}\", text_${number}},\n")
        math(EXPR number "${number} + 1")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    string(REGEX REPLACE "s$" "" one "${name}")
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.c @ONLY CONTENT
"#include \"${header}\"\n
${arrays}
const ${type} ht_${name}[] = {
${rows}};
const size_t ht_${one}_count = ${number};\n")
endfunction()

# Compiled for the machine's GPU when a plan is made, so that the build needs no CUDA.
file(GLOB_RECURSE cuda_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernel/*.cu)
embed_texts(cuda_files kernel/cuda/cuda_files.h ht_cuda_file ${cuda_files})

file(GLOB target_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/targets/*.json)
embed_texts(shipped_targets graph/target.h ht_shipped_target ${target_files})

# Loops that a probe times on a GPU.
embed_texts(probe_texts probe/gpu_own.h ht_probe_text ${CMAKE_SOURCE_DIR}/src/probe/gpu_loops.cu)

# What charts of pages do when a reader points at them.
embed_texts(page_scripts report/page.h ht_page_script ${CMAKE_SOURCE_DIR}/src/report/page_script.js)
