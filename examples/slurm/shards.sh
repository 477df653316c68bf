#!/bin/sh
# Measures a suite in N shards, each a task of a Slurm array, and judges them together.
#
#   sh shards.sh SUITE N                     by what the suite expects, as `regatta run` does
#   sh shards.sh SUITE N --baseline NAME     against a baseline, as `regatta gate` does
#
# It waits, prints the answer, and exits with the verdict's code. See README.md.
set -eu
suite=$1 shards=$2
reports=reports/$(basename "$suite" .toml)
logs=$reports/slurm

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
  # A task: measures one shard, or goes on with it where a task before was stopped.
  [ ! -e "$logs/$SLURM_ARRAY_TASK_ID.done" ] || exit 0
  # shellcheck disable=SC2086 # options, as words
  regatta run "$suite" --shard "$((SLURM_ARRAY_TASK_ID + 1))/$shards" ${REGATTA_RUN:-}
  exec touch "$logs/$SLURM_ARRAY_TASK_ID.done"
fi

shift 2
mkdir -p "$logs"
rm -f "$logs"/*.done
for try in 1 2 3; do
  sbatch --wait --quiet --array="0-$((shards - 1))" --job-name="$(basename "$reports")" \
    --requeue --open-mode=append --output="$logs/%a.log" "$0" "$suite" "$shards" && break
  echo "try $try: not every shard was measured to its end; their logs are in $logs" >&2
done
if [ $# = 0 ]; then set -- --no-base; fi
code=0
regatta diff "$@" "$reports" || code=$?
regatta report "$reports" >/dev/null || true
exit "$code"
