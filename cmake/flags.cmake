# How every C file is compiled. `halftone_flags` carries it to each target.
#
# Asserts stay on in release builds: a broken invariant must stop, not train on. -ffp-contract=off and the absence of
# -ffast-math are part of the "same bits" promise: FMA only where a kernel writes it.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -g")
set(CMAKE_C_FLAGS_DEBUG "-Og -g3 -DHT_DEBUG=1")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(halftone_flags INTERFACE)
target_compile_options(halftone_flags INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -ffp-contract=off -fno-math-errno -fno-trapping-math
    $<$<BOOL:${HALFTONE_WERROR}>:-Werror>)

if(HALFTONE_SANITIZE)
    target_compile_options(halftone_flags INTERFACE
        -fsanitize=${HALFTONE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
    target_link_options(halftone_flags INTERFACE -fsanitize=${HALFTONE_SANITIZE})
endif()
