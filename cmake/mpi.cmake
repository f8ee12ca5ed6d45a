# One shim per MPI flavour whose compiler is here (src/comm/mpi_shim.h). They lie beside the program, which opens them at run
# time and needs none of them. HALFTONE_MPI_COMPILERS names compilers; what mpi.h they bring says which flavour is theirs.
set(HALFTONE_MPI_COMPILERS mpicc.openmpi mpicc.mpich mpicc CACHE STRING "Wrappers to build shims for MPI with")
mark_as_advanced(HALFTONE_MPI_COMPILERS)
set(HALFTONE_MPI_FLAVOURS)

function(mpi_flavour compiler result)
    set(probe ${CMAKE_BINARY_DIR}/mpi_flavour.c)
    file(WRITE ${probe} "#include <mpi.h>\n#ifdef OPEN_MPI\nflavour=openmpi\n#elif defined(MPICH_NAME)\nflavour=mpich\n#endif\n")
    execute_process(COMMAND ${compiler} -E ${probe} OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCH "flavour=([a-z]+)" found "${text}")
    set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

foreach(name ${HALFTONE_MPI_COMPILERS})
    if(NOT HALFTONE_MPI OR CMAKE_CROSSCOMPILING)
        continue()
    endif()
    find_program(HALFTONE_PATH_OF_${name} NAMES ${name})
    mark_as_advanced(HALFTONE_PATH_OF_${name})
    set(compiler ${HALFTONE_PATH_OF_${name}})
    if(NOT compiler)
        continue()
    endif()
    mpi_flavour(${compiler} flavour)
    if(NOT flavour OR flavour IN_LIST HALFTONE_MPI_FLAVOURS)
        continue()
    endif()
    # The wrapper itself compiles: it knows its folders and libraries, and no sanitizer is in its way.
    set(shim ${CMAKE_BINARY_DIR}/libhalftone_mpi_${flavour}.so)
    add_custom_command(OUTPUT ${shim}
        COMMAND ${compiler} -std=gnu11 -O2 -g -fPIC -shared -Wall -Wextra -fvisibility=hidden
                -I${CMAKE_SOURCE_DIR}/src -o ${shim} ${CMAKE_SOURCE_DIR}/src/comm/shim/mpi_shim.c
        DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/shim/mpi_shim.c ${CMAKE_SOURCE_DIR}/src/comm/mpi_shim.h VERBATIM)
    add_custom_target(halftone_mpi_${flavour} ALL DEPENDS ${shim})
    list(APPEND HALFTONE_MPI_FLAVOURS ${flavour})
    # A program with an MPI of its own, as a user would build it; a library with sanitizers wants a program with them.
    if(NOT HALFTONE_SANITIZE)
        set(example ${CMAKE_BINARY_DIR}/examples/own_mpi_${flavour})
        set(source ${CMAKE_SOURCE_DIR}/examples/ranks/own_mpi.c)
        add_custom_command(OUTPUT ${example}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/examples
            COMMAND ${compiler} -std=c11 -O2 -Wall -Wextra -I${CMAKE_SOURCE_DIR}/include -o ${example} ${source}
                    -L${CMAKE_BINARY_DIR} -lhalftone -lm -Wl,-rpath,${CMAKE_BINARY_DIR}
            DEPENDS ${source} halftone VERBATIM)
        add_custom_target(example_own_mpi_${flavour} ALL DEPENDS ${example} halftone_mpi_${flavour})
    endif()
endforeach()
