#!/usr/bin/env bash
usage="bench/gpu/run.sh [--dry-run] [--json FILE] [--only ROW,...]
Builds the trainer with the LibTorch of a Python's PyTorch and runs suite gpu beside that PyTorch.
  --dry-run             builds and runs nothing: prints rows, their goals and their commands
  --json FILE           also FILE and, beside it, a page .md
  FOREBAY_BENCH_PYTHON  a Python whose torch (2.11, with CUDA) sees a GPU; else python3
  FOREBAY_GPU_BUILD     the build tree; else build/gpu
  FOREBAY_GPU_SECONDS   the time for building and measuring; what does not begin in it is not
                        measured, and no build is ended; else 570
Needs the packages of deploy/install_packages.sh build trainer test, and CUDA's nvcc on PATH.
Exit status: 0 all goals met, 1 a goal missed or no GPU, 2 wrong usage."
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="${FOREBAY_GPU_BUILD:-$root/build/gpu}"
seconds="${FOREBAY_GPU_SECONDS:-570}"
export FOREBAY_BENCH_PYTHON="${FOREBAY_BENCH_PYTHON:-python3}"

words=()
dry_run=
for word in "$@"; do
  case "$word" in
    -h | --help)
      echo "$usage"
      exit 0
      ;;
    --dry-run) dry_run=1 ;;
    *) words+=("$word") ;;
  esac
done
if [[ -n "$dry_run" ]]; then
  export PYTHONPATH="$root/bench${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
  exec python3 -m harness.gpu "${words[@]}"
fi

if [[ ! "$seconds" =~ ^[1-9][0-9]*$ ]]; then
  echo "bench/gpu/run.sh: FOREBAY_GPU_SECONDS=$seconds: a whole number of seconds" >&2
  exit 2
fi
export FOREBAY_GPU_ENDS=$(($(date +%s) + seconds))

"$FOREBAY_BENCH_PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
  2>/dev/null || {
  echo "bench/gpu/run.sh: $FOREBAY_BENCH_PYTHON has no PyTorch that sees a GPU: name another by" \
    "FOREBAY_BENCH_PYTHON, or take a machine with a GPU; --dry-run shows what would run" >&2
  exit 1
}
command -v nvcc >/dev/null || {
  echo "bench/gpu/run.sh: no nvcc on PATH: LibTorch with CUDA asks for CUDA's toolkit of the" \
    "same version" >&2
  exit 1
}
modules="$("$FOREBAY_BENCH_PYTHON" -c 'import torch; print(torch.utils.cmake_prefix_path)')"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$modules"
cmake --build "$build" --target \
  forebay_gpu_bench forebay_train trainer_layout_identity_test trainer_low_precision_test \
  trainer_device_test forebayd forebay_cli

exec "$root/bench/run.sh" gpu --build "$build" "${words[@]}"
