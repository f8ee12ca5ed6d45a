# tests/FOLDER/test_*.c   one cmocka program each, named after its file; FOLDER is the folder of src/ that it tests
# tests/FOLDER/fuzz_*.c   one fuzz target each; here linked with support/fuzz_replay.c and run over tests/corpus/NAME
# tests/support/*.c       fixtures, linked into every test
# A program that cannot run here exits with 77 and counts as skipped.
enable_testing()
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

set(tests_dir ${CMAKE_SOURCE_DIR}/tests)
file(GLOB test_sources CONFIGURE_DEPENDS ${tests_dir}/*/test_*.c)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${tests_dir}/*/fuzz_*.c)
file(GLOB support_sources CONFIGURE_DEPENDS ${tests_dir}/support/*.c)
file(GLOB corpora CONFIGURE_DEPENDS LIST_DIRECTORIES true ${tests_dir}/corpus/*)
list(REMOVE_ITEM support_sources ${tests_dir}/support/fuzz_replay.c)
list(REMOVE_ITEM fuzz_sources ${tests_dir}/support/fuzz_replay.c)

# How a test starts the program. Under an emulator that is a script, for the kernel knows only its own programs.
set(program ${CMAKE_BINARY_DIR}/halftone)
if(CMAKE_CROSSCOMPILING_EMULATOR)
    set(program ${CMAKE_BINARY_DIR}/halftone-emulated)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
    file(CONFIGURE OUTPUT ${program} CONTENT "#!/bin/sh\nexec ${emulator} ${CMAKE_BINARY_DIR}/halftone \"$@\"\n" @ONLY)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/emulate CONTENT "#!/bin/sh\nexec ${emulator} \"$@\"\n" @ONLY)
    file(CHMOD ${program} ${CMAKE_BINARY_DIR}/emulate PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endif()

add_library(test_inside INTERFACE)
target_include_directories(test_inside INTERFACE ${tests_dir}/support)
target_compile_definitions(test_inside INTERFACE
    HT_TEST_DIR="${tests_dir}" HT_GOLDEN_DIR="${tests_dir}/golden" HT_PROGRAM="${program}")
target_link_libraries(test_inside INTERFACE halftone_core PkgConfig::CMOCKA)
add_library(test_support STATIC ${support_sources})
target_link_libraries(test_support PRIVATE test_inside)

function(halftone_test name)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200 ENVIRONMENT CMOCKA_MESSAGE_OUTPUT=TAP)
endfunction()

function(halftone_test_program name)
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(${name} PRIVATE test_support test_inside)
endfunction()

include(cmake/emulator.cmake)
foreach(source ${test_sources})
    cmake_path(GET source STEM name)
    halftone_test_program(${name} ${source})
    if(TARGET halftone_program)
        add_dependencies(${name} halftone_program)
    endif()
    halftone_test(${name} ${name})
endforeach()

foreach(flavour ${HALFTONE_MPI_FLAVOURS})
    add_dependencies(test_comm_mpi halftone_mpi_${flavour})
    if(TARGET example_own_mpi_${flavour})
        add_dependencies(test_comm_mpi example_own_mpi_${flavour})
    endif()
endforeach()

halftone_test(test_cuda_ranks test_session_ranks)
set_property(TEST test_cuda_ranks APPEND PROPERTY ENVIRONMENT HALFTONE_TEST_RANKS=cuda HALFTONE_EMULATED_GPUS=4)

# On the emulator, whether there is a GPU or not, with kernels that all builds share; on a GPU they run by themselves (build/tests/test_cuda_ops).
foreach(name test_cuda_channels test_cuda_failures test_cuda_lstm test_cuda_models test_cuda_ops test_cuda_probe test_cuda_ranks test_cuda_session test_cuda_stream test_cuda_train test_emulator)
    if(TARGET emulated_libcuda)
        if(TARGET ${name})
            add_dependencies(${name} ${emulated_libraries})
        endif()
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT HALFTONE_EMULATED=1
            LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/emulator XDG_CACHE_HOME=${CMAKE_SOURCE_DIR}/build/emulated-kernels)
    endif()
endforeach()

if(TARGET emulated_libcuda)
    halftone_test(test_cuda_channels_products test_cuda_channels)
    add_dependencies(test_cuda_products ${emulated_libraries} emulated_libcublasLt_products)
    add_dependencies(test_cuda_codes ${emulated_libraries} emulated_libcublasLt_products)
    add_dependencies(test_cuda_failures emulated_libcublasLt_products)
    set_property(TEST test_cuda_products test_cuda_channels_products test_cuda_codes APPEND PROPERTY
        ENVIRONMENT HALFTONE_EMULATED=1
        LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/emulator/products:${CMAKE_BINARY_DIR}/emulator
        XDG_CACHE_HOME=${CMAKE_SOURCE_DIR}/build/emulated-kernels)
endif()

foreach(source ${fuzz_sources})
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "^fuzz_" "" corpus ${name})
    halftone_test_program(replay_${corpus} ${source} ${tests_dir}/support/fuzz_replay.c)
    if(${tests_dir}/corpus/${corpus} IN_LIST corpora)
        halftone_test(replay_${corpus} replay_${corpus} ${tests_dir}/corpus/${corpus})
    endif()
endforeach()

foreach(example ${HALFTONE_EXAMPLES})
    halftone_test(${example} ${example})
endforeach()

# tests/plugins/*.c   one shared object each, as users write them; the programs that load them lend their symbols
file(GLOB plugin_sources CONFIGURE_DEPENDS ${tests_dir}/plugins/*.c)
foreach(source ${plugin_sources})
    cmake_path(GET source STEM name)
    add_library(${name} MODULE ${source})
    set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE halftone_flags)
    add_dependencies(test_model_own ${name})
endforeach()
set_target_properties(test_model_own PROPERTIES ENABLE_EXPORTS ON)
target_compile_definitions(test_model_own PRIVATE HT_PLUGIN_DIR="${CMAKE_BINARY_DIR}/tests")

halftone_test(layers ${CMAKE_SOURCE_DIR}/tools/check-layers ${CMAKE_SOURCE_DIR})
halftone_test(layers_refuses ${CMAKE_SOURCE_DIR}/tools/check-layers-test)
halftone_test(words ${CMAKE_SOURCE_DIR}/tools/check-words ${CMAKE_SOURCE_DIR})
