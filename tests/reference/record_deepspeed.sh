#!/bin/sh
# record_deepspeed.sh HALFTONE FOLDER: prints what `halftone check` says of each config in FOLDER, as
# deepspeed_outcomes.tsv has it: the file's name, and "accepted" or the first error without that name.
set -eu
program=$(realpath "$1")
cd "$2"
for file in *.json; do
    if message=$("$program" check "$file" 2>&1 >/dev/null); then
        printf '%s\taccepted\n' "$file"
    else
        first=$(printf '%s\n' "$message" | sed -n 's/^error: //p' | head -n 1)
        printf '%s\t%s\n' "$file" "${first#"$file"}"
    fi
done
