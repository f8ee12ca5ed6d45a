# Cross compilation for 64-bit Arm with Debian's gcc-aarch64-linux-gnu; programs run under qemu's user mode.
# tools/fetch-arm64 puts the arm64 libraries into build/arm64-packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(arm64_packages ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-packages)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=${arm64_packages}/usr/lib/aarch64-linux-gnu)
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES ${arm64_packages}/usr/include/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${arm64_packages})
set(ENV{PKG_CONFIG_LIBDIR} ${arm64_packages}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${arm64_packages})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
