# halftone_core: every object, for the program and the tests.  halftone: the shared library, only HT_API is visible.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(FILES REQUIRED IMPORTED_TARGET zlib libpng libjpeg libxxhash) # what src/format reads and sums with

set(library_sources)
foreach(room ${HALFTONE_ROOMS})
    file(GLOB_RECURSE room_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND library_sources ${room_sources})
endforeach()
if(NOT library_sources)
    message(FATAL_ERROR "no sources under src/")
endif()

# The build chooses files; the code has no #if for it.
set(topology_unused hwloc)
if(HALFTONE_HWLOC)
    pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
    set(topology_unused plain)
endif()
list(REMOVE_ITEM library_sources
    ${CMAKE_SOURCE_DIR}/src/base/topology_${topology_unused}.c
    ${CMAKE_SOURCE_DIR}/src/probe/describe_${topology_unused}.c)

set(uring_unused src/device/disk_uring.c)
if(HALFTONE_URING)
    pkg_check_modules(URING QUIET IMPORTED_TARGET liburing)
endif()
if(URING_FOUND)
    set(uring_unused src/device/disk_no_uring.c)
endif()
list(REMOVE_ITEM library_sources ${CMAKE_SOURCE_DIR}/${uring_unused})

# Only its header is needed here: the library is opened when somebody asks for it.
set(http_unused src/serve/server_microhttpd.c)
if(HALFTONE_HTTP)
    pkg_check_modules(MICROHTTPD QUIET libmicrohttpd>=0.9.72)
endif()
if(MICROHTTPD_FOUND)
    set(http_unused src/serve/server_none.c)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/serve/server_microhttpd.c
        PROPERTY INCLUDE_DIRECTORIES ${MICROHTTPD_INCLUDE_DIRS})
endif()
list(REMOVE_ITEM library_sources ${CMAKE_SOURCE_DIR}/${http_unused})

# Each is a library of its own, compiled by the MPI that it is for (cmake/mpi.cmake).
list(FILTER library_sources EXCLUDE REGEX "/src/comm/shim/")

# What every file of the library is compiled with.
add_library(halftone_inside INTERFACE)
target_include_directories(halftone_inside INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(halftone_inside INTERFACE HT_VERSION="${PROJECT_VERSION}")
target_link_libraries(halftone_inside INTERFACE halftone_flags Threads::Threads PkgConfig::FILES)
if(HALFTONE_HWLOC)
    target_link_libraries(halftone_inside INTERFACE PkgConfig::HWLOC)
endif()
if(URING_FOUND)
    target_link_libraries(halftone_inside INTERFACE PkgConfig::URING)
endif()

# Kernels, and the loops of a probe. NAME.cpu.c is compiled for each cell of the matrix, NAME.ROW.c only for that row of isas.def. Cells and rows
# of instruction sets of other architectures are compiled, too, without what runs them (HT_PLAN_ONLY), so that we can plan
# for those; files of features hold only what runs, with intrinsics.
include(cmake/isas.cmake)
set(kernel_sources ${library_sources})
list(FILTER kernel_sources INCLUDE REGEX "/src/(kernel|probe)/")
set(matrix_sources)
foreach(source ${kernel_sources})
    cmake_path(GET source EXTENSION extension)
    string(REGEX REPLACE "^\\.(.*)\\.c$" "\\1" row ${extension})
    if(extension STREQUAL ".c")
        continue()
    elseif(row STREQUAL "cuda") # code as text: compiled once, like any other file
        continue()
    elseif(row STREQUAL "cpu")
        list(APPEND matrix_sources ${source})
    elseif(row IN_LIST row_names OR row IN_LIST foreign_isas)
        list(APPEND sources_of_${row} ${source})
    elseif(NOT row IN_LIST foreign_features)
        message(FATAL_ERROR "${source}: '${row}' is no row of src/base/isas.def")
    endif()
    list(REMOVE_ITEM library_sources ${source})
endforeach()

# A kernel file says itself what flags it needs beyond those of all files, in lines of its own:
#     /* HT_COMPILE: -ffp-contract=fast */                     for every compiler
#     /* HT_COMPILE GNU: -fschedule-insns */                   for one (CMAKE_C_COMPILER_ID)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_sources})
foreach(source ${kernel_sources})
    file(STRINGS ${source} lines REGEX "^/\\* HT_COMPILE( ${CMAKE_C_COMPILER_ID})?: .* \\*/$")
    foreach(line ${lines})
        string(REGEX REPLACE "^[^:]*: (.*) \\*/$" "\\1" flags "${line}")
        separate_arguments(flags)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${flags})
    endforeach()
endforeach()

include(cmake/embed.cmake)
add_library(halftone_objects OBJECT
    ${library_sources} ${CMAKE_BINARY_DIR}/cuda_files.c ${CMAKE_BINARY_DIR}/shipped_targets.c
    ${CMAKE_BINARY_DIR}/page_scripts.c ${CMAKE_BINARY_DIR}/probe_texts.c)
target_link_libraries(halftone_objects PRIVATE halftone_inside)
set(object_libraries halftone_objects)

# kernel_objects(NAME ROW REAL SOURCE...): an object library; the names in it come from these definitions.
set(real_name_float f32)
set(real_name_double f64)
function(kernel_objects name row real)
    set(isa ${row_isa_${row}})
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PRIVATE halftone_inside)
    target_compile_options(${name} PRIVATE ${row_flags_${row}})
    target_compile_definitions(${name} PRIVATE
        HT_REAL=${real} HT_REAL_NAME=${real_name_${real}} HT_ISA_NAME=${isa} HT_ISA_ID=${isa_id_${isa}})
    set(object_libraries ${object_libraries} ${name} PARENT_SCOPE)
endfunction()

foreach(isa ${isas} ${foreign_isas})
    kernel_objects(kernel_f32_${isa} ${isa} float ${matrix_sources})
    kernel_objects(kernel_f64_${isa} ${isa} double ${matrix_sources})
endforeach()
foreach(row ${row_names} ${foreign_isas})
    if(sources_of_${row})
        kernel_objects(kernel_${row} ${row} float ${sources_of_${row}})
    endif()
endforeach()

set(objects)
foreach(library ${object_libraries})
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
endforeach()

add_library(halftone_core STATIC ${objects})
set_target_properties(halftone_core PROPERTIES LINKER_LANGUAGE C)
target_link_libraries(halftone_core PUBLIC halftone_inside m ${CMAKE_DL_LIBS})

add_library(halftone SHARED ${objects})
set_target_properties(halftone PROPERTIES
    LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(halftone INTERFACE ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(halftone PRIVATE halftone_inside m ${CMAKE_DL_LIBS})
if(NOT HALFTONE_SANITIZE)
    target_link_options(halftone PRIVATE -Wl,--no-undefined)
endif()
