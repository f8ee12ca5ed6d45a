#!/bin/sh
# record_deepspeed.sh HALFTONE FOLDER: prints what Halftone makes of each config in FOLDER, as deepspeed_outcomes.tsv has it:
# the file's name; "accepted" or the first error of `halftone check` without that name; "trains" or the first error of ten
# steps of a small job with --lenient.
set -eu
program=$(realpath "$1")
cd "$2"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
awk 'BEGIN { for (i = 0; i < 64; i++) print sin(i) "," cos(i * i) "," (sin(i) > 0.3) }' >"$work/t.csv"
printf '{"model": {"type": "mlp", "hidden": [8]},
 "data": {"format": "table", "train": "%s/t.csv", "validation_share": 0},
 "train": {"steps": 10, "eval_every": 0, "snapshot_every": 0, "output": "%s/run"}}' "$work" "$work" >"$work/job.json"

# first_error FILE MESSAGE
first_error() {
    first=$(printf '%s\n' "$2" | sed -n 's/^error: //p' | head -n 1)
    printf '%s' "${first#"$1"}"
}

for file in *.json; do
    checked=accepted trained=trains
    message=$("$program" check "$file" 2>&1 >/dev/null) || checked=$(first_error "$file" "$message")
    message=$("$program" train "$work/job.json" --force --lenient --deepspeed "$file" 2>&1 >/dev/null) ||
        trained=$(first_error "$file" "$message")
    printf '%s\t%s\t%s\n' "$file" "$checked" "$trained"
done
