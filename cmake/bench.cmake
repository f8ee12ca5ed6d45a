# bench/bench_NAME.c   one program each, built by the target bench_programs only
# bench/peer_NAME.c    another library in a process of its own (bench/peer.h), built where that library is found
# bench/*.c            anything else is support code, linked into every benchmark
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/bench_*.c)
file(GLOB peer_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/peer_*.c)
file(GLOB bench_support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
list(REMOVE_ITEM bench_support ${bench_sources} ${peer_sources})
add_custom_target(bench_programs)

add_library(bench_support STATIC EXCLUDE_FROM_ALL ${bench_support})
target_include_directories(bench_support PUBLIC ${CMAKE_SOURCE_DIR}/bench)
target_compile_definitions(bench_support PRIVATE BENCH_SOURCE_DIR="${CMAKE_SOURCE_DIR}/bench")
target_link_libraries(bench_support PUBLIC halftone_core)

foreach(source ${bench_sources})
    cmake_path(GET source STEM name)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    target_link_libraries(${name} PRIVATE bench_support)
    add_dependencies(bench_programs ${name})
endforeach()

# A glob is looked at again before each build: a peer's package that was installed since makes CMake run again.
file(GLOB peer_headers CONFIGURE_DEPENDS
    /usr/include/*/openblas-openmp/cblas.h /usr/include/oneapi/dnnl/dnnl.h)

# bench_peer(name header library folder): folder is where Debian keeps one of several builds of the library.
function(bench_peer name header library folder)
    string(TOUPPER ${name} upper)
    find_path(${upper}_PEER_INCLUDE ${header} PATH_SUFFIXES ${folder} ${CMAKE_LIBRARY_ARCHITECTURE}/${folder})
    find_library(${upper}_PEER_LIBRARY ${library} PATH_SUFFIXES ${folder})
    mark_as_advanced(${upper}_PEER_INCLUDE ${upper}_PEER_LIBRARY)
    if(NOT ${upper}_PEER_INCLUDE OR NOT ${upper}_PEER_LIBRARY)
        return()
    endif()
    add_executable(peer_${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/peer_${name}.c)
    set_target_properties(peer_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    target_include_directories(peer_${name} PRIVATE ${CMAKE_SOURCE_DIR}/bench)
    target_include_directories(peer_${name} SYSTEM PRIVATE ${${upper}_PEER_INCLUDE})
    target_link_libraries(peer_${name} PRIVATE halftone_flags ${${upper}_PEER_LIBRARY})
    add_dependencies(bench_programs peer_${name})
endfunction()

# Never while cross-compiling: the libraries would be the other machine's.
if(NOT CMAKE_CROSSCOMPILING)
    bench_peer(openblas cblas.h openblas openblas-openmp)
    if(EXISTS /usr/include/oneapi/dnnl/dnnl_version.h)
        file(STRINGS /usr/include/oneapi/dnnl/dnnl_version.h dnnl_major REGEX "define DNNL_VERSION_MAJOR")
    endif()
    if(dnnl_major MATCHES " 2$") # peer_onednn.c speaks version 2
        bench_peer(onednn oneapi/dnnl/dnnl.h dnnl "")
    endif()
endif()

# bench/gpu: a script beside the programs, which measures where there is a GPU.
foreach(file bench_gpu peer_gpu.py)
    configure_file(${CMAKE_SOURCE_DIR}/bench/gpu/${file} ${CMAKE_BINARY_DIR}/bench/${file} COPYONLY)
endforeach()
# bench/ranks: the same for ranks; its peer trains the model of peer_torch.py.
foreach(file ranks/bench_ranks ranks/peer_deepspeed.py peer_torch.py)
    cmake_path(GET file FILENAME name)
    configure_file(${CMAKE_SOURCE_DIR}/bench/${file} ${CMAKE_BINARY_DIR}/bench/${name} COPYONLY)
endforeach()
add_dependencies(bench_programs halftone_program)
