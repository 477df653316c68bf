#!/usr/bin/env bash
# Fuzzes readers with libFuzzer on a stable toolchain:
#   bash tests/fuzz/run.sh [SECONDS [TARGET...]]
# Each of the targets (all of seeds/ unless some are named) runs for so many
# seconds (600), one after the other, from seeds/ and what earlier runs found
# (corpus/). An input that fails is kept under artifacts/; put it into seeds/TARGET/ with the fix,
# where main.rs reads it from then on.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(ls seeds))
host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes, without a sanitizer, which a stable rustc does not have: a panic,
# an overflow, a hang and memory out of proportion are found without.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares"
cargo build --release --target "$host" --bins
# Readers read files: those of a fuzzer belong into memory.
[ -d /dev/shm ] && export TMPDIR=/dev/shm
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" "artifacts/$target"
  "target/$host/release/$target" "corpus/$target" "seeds/$target" \
    -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" -max_len=20000 \
    -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 2>&1 |
    grep --line-buffered -vE 'NEW|REDUCE|pulse|RELOAD'
done
