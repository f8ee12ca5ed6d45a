# halftone_core: every object, for the program and the tests.  halftone: the shared library, only HT_API is visible.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(FILES REQUIRED IMPORTED_TARGET zlib libpng libjpeg libxxhash) # what src/format reads and sums with

set(library_sources)
foreach(room ${HALFTONE_ROOMS})
    file(GLOB room_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND library_sources ${room_sources})
endforeach()

# The build chooses files; the code has no #if for it.
set(topology_unused src/base/topology_hwloc.c)
if(HALFTONE_HWLOC)
    pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
    set(topology_unused src/base/topology_plain.c)
endif()
list(REMOVE_ITEM library_sources ${CMAKE_SOURCE_DIR}/${topology_unused})

set(matrix_sources ${library_sources})
list(FILTER matrix_sources INCLUDE REGEX "/src/kernel/[^/]*\\.cpu\\.c$")
list(FILTER library_sources EXCLUDE REGEX "/src/kernel/[^/]*\\.cpu\\.c$")
set(x86_sources ${library_sources})
list(FILTER x86_sources INCLUDE REGEX "/src/kernel/[^/]*\\.x86\\.c$")
list(FILTER library_sources EXCLUDE REGEX "/src/kernel/[^/]*\\.x86\\.c$")
if(NOT library_sources)
    message(FATAL_ERROR "no sources under src/")
endif()

# What every file of the library is compiled with.
add_library(halftone_inside INTERFACE)
target_include_directories(halftone_inside INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(halftone_inside INTERFACE HT_VERSION="${PROJECT_VERSION}")
target_link_libraries(halftone_inside INTERFACE halftone_flags Threads::Threads PkgConfig::FILES)
if(HALFTONE_HWLOC)
    target_link_libraries(halftone_inside INTERFACE PkgConfig::HWLOC)
endif()

set(isas portable)
set(built_isas)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    list(APPEND isas avx2 avx512)
    set(built_isas HT_BUILT_X86=1)
endif()
set(isa_flags_portable)
set(isa_flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(isa_flags_avx512 ${isa_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
set(real_name_float f32)
set(real_name_double f64)

add_library(halftone_objects OBJECT ${library_sources})
target_link_libraries(halftone_objects PRIVATE halftone_inside)
foreach(source ${library_sources})
    if(built_isas AND source MATCHES "/src/kernel/")
        set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "${built_isas}")
    endif()
endforeach()
set(object_libraries halftone_objects)

# A kernel file says itself what flags it needs beyond those of all files, in lines of its own:
#     /* HT_COMPILE: -ffp-contract=fast */        for every compiler
#     /* HT_COMPILE GNU: -fschedule-insns */      for one (CMAKE_C_COMPILER_ID)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${matrix_sources})
foreach(source ${matrix_sources})
    file(STRINGS ${source} lines REGEX "^/\\* HT_COMPILE( ${CMAKE_C_COMPILER_ID})?: .* \\*/$")
    foreach(line ${lines})
        string(REGEX REPLACE "^[^:]*: (.*) \\*/$" "\\1" flags "${line}")
        separate_arguments(flags)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${flags})
    endforeach()
endforeach()

# The kernel matrix: each *.cpu.c once per real type and instruction set; the names in it come from these definitions.
if(matrix_sources)
    foreach(isa ${isas})
        string(TOUPPER ${isa} isa_upper)
        foreach(real float double)
            set(cell kernel_${real_name_${real}}_${isa})
            add_library(${cell} OBJECT ${matrix_sources})
            target_link_libraries(${cell} PRIVATE halftone_inside)
            target_compile_options(${cell} PRIVATE ${isa_flags_${isa}})
            target_compile_definitions(${cell} PRIVATE ${built_isas}
                HT_REAL=${real} HT_REAL_NAME=${real_name_${real}} HT_ISA_NAME=${isa} HT_ISA_ID=HT_ISA_${isa_upper})
            list(APPEND object_libraries ${cell})
        endforeach()
    endforeach()
endif()

# Files for instructions beyond avx512, each with flags of its own: only rows that ask for them may call them.
set(beyond_bf16_dot_avx512 -mavx512bf16)
set(beyond_bf16_dot_amx -mamx-tile -mamx-bf16)
if(built_isas)
    add_library(kernel_x86 OBJECT ${x86_sources})
    target_link_libraries(kernel_x86 PRIVATE halftone_inside)
    target_compile_options(kernel_x86 PRIVATE ${isa_flags_avx512})
    target_compile_definitions(kernel_x86 PRIVATE
        HT_REAL=float HT_REAL_NAME=f32 HT_ISA_NAME=avx512 HT_ISA_ID=HT_ISA_AVX512)
    foreach(name bf16_dot_avx512 bf16_dot_amx)
        set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernel/${name}.x86.c PROPERTIES
            COMPILE_OPTIONS "${beyond_${name}}")
    endforeach()
    list(APPEND object_libraries kernel_x86)
endif()

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
