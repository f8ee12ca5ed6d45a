# tests/emulator: libcuda, libnvrtc and libnccl on the CPU, in ${CMAKE_BINARY_DIR}/emulator, for tests of the CUDA device on
# machines without one. They compile kernels with c++; where there is none, or for another machine, there is no emulator.
set(emulator_dir ${CMAKE_SOURCE_DIR}/tests/emulator)
find_program(HALFTONE_CXX c++)
mark_as_advanced(HALFTONE_CXX)
if(CMAKE_CROSSCOMPILING OR NOT HALFTONE_CXX)
    return()
endif()

set(emulation_files ${emulator_dir}/emulated_state.h ${emulator_dir}/emulation.hpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${emulation_files})
set(bytes)
foreach(file ${emulation_files})
    file(READ ${file} more HEX)
    string(APPEND bytes ${more})
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/emulation_text.c @ONLY CONTENT
"extern const char emulation_text[];\nconst char emulation_text[] = {\n${bytes}0};\n")

# Without sanitizers, which know nothing of threads that change stacks.
add_library(emulator_flags INTERFACE)
target_include_directories(emulator_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(emulator_flags INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes $<$<BOOL:${HALFTONE_WERROR}>:-Werror>
    -U_FORTIFY_SOURCE)

# emulated_library(NAME VERSION SOURCE...): NAME.so.VERSION, as programs open it.
function(emulated_library name version)
    add_library(emulated_${name} SHARED ${ARGN})
    set_target_properties(emulated_${name} PROPERTIES
        PREFIX "" OUTPUT_NAME ${name} SUFFIX .so.${version} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/emulator)
    target_link_libraries(emulated_${name} PRIVATE emulator_flags Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
emulated_library(libcuda 1 ${emulator_dir}/emulated_driver.c ${emulator_dir}/emulated_blocks.c
    ${emulator_dir}/emulated_graphs.c)
# Libraries that the emulator's device has not, whatever else the machine has.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/emulated_nothing.c CONTENT "typedef int nothing;\n")
emulated_library(libcublasLt 13 ${CMAKE_BINARY_DIR}/emulated_nothing.c)
emulated_library(libcudnn 9 ${CMAKE_BINARY_DIR}/emulated_nothing.c)
emulated_library(libnccl 2 ${emulator_dir}/emulated_nccl.c)
emulated_library(libnvrtc 13 ${emulator_dir}/emulated_nvrtc.c ${CMAKE_BINARY_DIR}/emulation_text.c)
# For tests that ask for it: a cublasLt, in a folder of its own.
emulated_library(libcublasLt_products 13 ${emulator_dir}/emulated_cublaslt.c)
set_target_properties(emulated_libcublasLt_products PROPERTIES
    OUTPUT_NAME libcublasLt LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/emulator/products)
set(emulated_libraries emulated_libcuda emulated_libnvrtc emulated_libnccl emulated_libcublasLt emulated_libcudnn)
