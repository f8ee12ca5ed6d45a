# One shim per MPI flavour whose compiler is here (src/comm/mpi_shim.h). They lie beside the program, which opens them at run
# time and needs none of them.
set(HALFTONE_MPI_FLAVOURS)
set(mpi_compilers_openmpi mpicc.openmpi)
set(mpi_compilers_mpich mpicc.mpich)
foreach(flavour openmpi mpich)
    if(NOT HALFTONE_MPI OR CMAKE_CROSSCOMPILING)
        continue()
    endif()
    find_program(HALFTONE_MPICC_${flavour} NAMES ${mpi_compilers_${flavour}})
    mark_as_advanced(HALFTONE_MPICC_${flavour})
    if(NOT HALFTONE_MPICC_${flavour})
        continue()
    endif()
    # The wrapper itself compiles: it knows its folders and libraries, and no sanitizer is in its way.
    set(shim ${CMAKE_BINARY_DIR}/libhalftone_mpi_${flavour}.so)
    add_custom_command(OUTPUT ${shim}
        COMMAND ${HALFTONE_MPICC_${flavour}} -std=gnu11 -O2 -g -fPIC -shared -Wall -Wextra -fvisibility=hidden
                -I${CMAKE_SOURCE_DIR}/src -o ${shim} ${CMAKE_SOURCE_DIR}/src/comm/shim/mpi_shim.c
        DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/shim/mpi_shim.c ${CMAKE_SOURCE_DIR}/src/comm/mpi_shim.h VERBATIM)
    add_custom_target(halftone_mpi_${flavour} ALL DEPENDS ${shim})
    list(APPEND HALFTONE_MPI_FLAVOURS ${flavour})
endforeach()
