#!/bin/sh
# make_old_run.sh HALFTONE: writes the run folders and the expectations in tests/reference/old_run, for test_old_run.c.
#
# They show that a run of an older program goes on in a newer one, so they are made once, by the program that they stand
# for, and stay. Those in the tree were written by version 0.1.0 (snapshot format 1).
#
# For each job NAME.json, with the portable ISA, whose bits are the same on every x86 processor:
#     NAME/           a run of 12 steps that was killed before its last snapshot: the newest one is of step 6
#     NAME.expected   summary.sh of the run that the same program resumed, and of one that was never killed
set -eu
program=$(realpath "$1")
cd "$(dirname "$0")/old_run"
export HALFTONE_ISA=portable
for job in *.json; do
    name=${job%.json}
    rm -rf "$name"
    "$program" train "$job"
    ./summary.sh "$program" "$name" >"$name.expected"
    rm -r "$name/snapshots/step-00000012"
    cp -r "$name" "$name.killed"
    "$program" train "$job" --resume
    ./summary.sh "$program" "$name" | cmp - "$name.expected"
    rm -r "$name"
    mv "$name.killed" "$name"
done
