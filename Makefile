# The short front of the CMake build. `make help` lists the targets.
#
#   PRESET=release|debug|asan|tsan   which build `make test` tests
#   WERROR=OFF                       let warnings be warnings (a compiler that we have not met)
#   ONLY=name                        the tests or benchmarks whose name matches
#   EXCEPT=name                      not the tests whose name matches
#   FUZZ_SECONDS=300                 how long each fuzz target runs in `make test-long`

PRESET ?= release
WERROR ?= ON
ONLY ?=
EXCEPT ?=
FUZZ_SECONDS ?= 300

folder_release := build
folder = $(or $(folder_$(1)),build/$(1))
BUILD := $(call folder,$(PRESET))

packages_build := gcc libc6-dev cmake ninja-build pkg-config libhwloc-dev libcmocka-dev \
    zlib1g-dev libpng-dev libjpeg62-turbo-dev libxxhash-dev
packages_wish := liburing-dev libmicrohttpd-dev
packages_test := g++
packages_mpi := libopenmpi-dev openmpi-bin
packages_mpich := libmpich-dev mpich
packages_lint := clang-format clang-tidy
packages_fuzz := clang llvm libclang-rt-dev
packages_bench := libopenblas-openmp-dev libdnnl-dev fio
packages_aarch64 := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static

# What the build can do without is asked for first, and may be refused.
need = @tools/need-packages $(packages_wish) || echo "going on without them"; tools/need-packages $(packages_build)
# build(preset,targets): two makes in one tree wait for each other.
thread_ranks = test_comm test_session_ranks test_ranks test_ranks_alike test_ranks_compose test_ranks_overlap \
    test_pipeline_ranks test_tensor_ranks
build = tools/build $(1) $(call folder,$(1)) $(WERROR) $(2)

.PHONY: all run test test-gpu test-long asan tsan bench lint format clean help
all: ## build build/halftone, build/libhalftone.so and the examples
	$(need)
	@$(call build,$(PRESET),engine)

run: ## build, then train a small translator in several precisions (runs/demo)
	$(need)
	@$(call build,$(PRESET),halftone_program)
	$(BUILD)/halftone demo

test: ## build everything and run the tests
	$(need) $(packages_test)
	@tools/need-packages $(packages_mpi) || echo "going on without MPI: its tests are skipped"
	@$(call build,$(PRESET),all)
	@EXCEPT='$(EXCEPT)' tools/run-tests $(BUILD) $(ONLY)

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory test PRESET=asan

tsan: ## the tests of ranks that are threads, under ThreadSanitizer
	$(need) $(packages_test)
	@$(call build,tsan,halftone_program $(thread_ranks))
	@tools/run-tests $(call folder,tsan) '^($(subst $() ,|,$(thread_ranks)))$$'

test-gpu: ## the tests of the CUDA device on this machine's GPU
	$(need) $(packages_test)
	@$(call build,$(PRESET),all)
	@tools/run-gpu-tests $(BUILD)

test-long: ## thread sanitizer, long tests, fuzzers, 64-bit Arm
	$(need) $(packages_fuzz) $(packages_aarch64)
	@tools/need-packages $(packages_mpich) || echo "going on without MPICH: its tests are skipped"
	@$(MAKE) --no-print-directory test PRESET=tsan
	@HALFTONE_LONG=1 $(MAKE) --no-print-directory test
	@$(call build,fuzz,all)
	@tools/run-fuzzers $(call folder,fuzz) $(FUZZ_SECONDS)
	@tools/fetch-arm64 build/arm64-packages
	@$(call build,aarch64,all)
	@tools/run-tests $(call folder,aarch64)
	@tools/compare-plans $(call folder,release) $(call folder,aarch64)

bench: ## build and run the benchmarks (ONLY=name), with the peers that can be had
	$(need)
	@tools/need-packages $(packages_bench) || echo "bench: going on without the peers from these packages"
	@$(call build,release,bench_programs)
	@tools/run-benches $(call folder,release)/bench $(ONLY)

lint: ## formatting, clang-tidy, layers
	$(need) $(packages_lint)
	@$(call build,release,build.ninja)
	@tools/lint $(call folder,release)

format: ## rewrite the C files as .clang-format says
	@tools/need-packages clang-format
	@tools/c-files | xargs -r clang-format -i

clean: ## remove build/
	rm -rf build

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' Makefile | awk -F': ' '{ printf "  make %-10s %s\n", $$1, $$2 }'
