#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests, in named and timed stages.
#
#   deploy/test.sh                        what CI runs: packages build test
#   deploy/test.sh --stage NAME...        only these, in the order given; the longer check is
#                                         packages build clang fuzz test
#   deploy/test.sh --soak MINUTES         random faults, jobs under random faults, and random
#                                         sequences of the model test, each for so long, on a
#                                         release build; seeds are printed, FOREBAY_FAULT_SEED,
#                                         FOREBAY_CHAOS_SEED and FOREBAY_MODEL_SEED repeat them
#
# stages  packages  Debian packages (deploy/packages.txt)
#         build     g++, everything that is found, every header alone   (preset ci)
#         clang     clang++ with thread-safety analysis, ASan and UBSan; fast tests on it
#                   (preset fuzz)
#         fuzz      each fuzzer of that build for FOREBAY_FUZZ_SECONDS (10)
#         test      ctest on the build of stage `build`
#         client, tsan, tidy, coverage   the workflow of that preset
#         soak      the tests labelled soak, on a release build
#
# FOREBAY_TEST_MINUTES (25) bounds a run: clang and fuzz stop where they would leave test less
# than its share, and say so. FOREBAY_JOBS sets the parallelism. Exit status 0 only where every
# stage passed; then the last line is ctest's.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/cpu_seconds.sh

readonly budget_s=$((${FOREBAY_TEST_MINUTES:-25} * 60))
readonly test_share_s=$((budget_s / 4))
readonly fuzz_seconds=${FOREBAY_FUZZ_SECONDS:-10}
readonly log_folder=build/test-logs

# Two dozen tests compiled at once take 2.2 GB, so memory bounds the jobs as well as cores do.
jobs_that_fit() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1024 / 2300) }' /proc/meminfo)
  echo $((memory_jobs < 1 ? 1 : memory_jobs < cores ? memory_jobs : cores))
}
readonly jobs=${FOREBAY_JOBS:-$(jobs_that_fit)}
# Tests wait for timers, other processes and disks for half of their time.
readonly test_jobs=${FOREBAY_JOBS:-$((2 * jobs))}

# Open MPI refuses root and more ranks than cores unless told; containers lack ptrace for its
# single-copy path.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

say() { printf '== %s\n' "$*"; }

# left: seconds until stage test must start.
left() { echo $((budget_s - test_share_s - SECONDS)); }

# to_log NAME COMMAND...: output to a file; its end is shown where the command fails.
to_log() {
  local log="$log_folder/$1.log" status=0
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [[ $status -ne 0 && $status -ne 124 ]]; then
    # A build goes on past a failure, so the reasons may lie far above the end.
    grep -E '^FAILED: |: (fatal )?error: |: undefined reference|ERROR: |runtime error: ' "$log" |
      head -n 40 | sed 's/^/  > /' || true
    tail -n 60 "$log" | sed 's/^/  | /'
    say "the whole log: $log"
  fi
  return $status
}

stage_packages() {
  local groups=(build run trainer test bench_build clang)
  # Alone, it shows that the client needs no other packages.
  [[ "$*" == "packages client" ]] && groups=(client)
  [[ " $* " == *" tidy "* ]] && groups+=(tidy)
  [[ " $* " == *" coverage "* ]] && groups+=(coverage)
  deploy/install_packages.sh "${groups[@]}" </dev/null
}

stage_build() {
  to_log configure cmake --preset ci || return
  grep -E '^-- (Skipping|Forebay:)' "$log_folder/configure.log" || true
  to_log build cmake --build --preset ci -j "$jobs" -- -k 0
}

# Runs for the time that is left; a stage cut short is reported, not failed.
stage_clang() {
  local status=0 seconds
  seconds=$(left)
  if [[ $seconds -lt 60 ]]; then
    say "clang: NOT RUN, only $seconds s are left before the tests must start"
    return 0
  fi
  to_log clang-build timeout "$seconds" bash -c \
    "cmake --preset fuzz && cmake --build --preset fuzz -j $jobs -- -k 0" || status=$?
  if [[ $status -eq 124 ]]; then
    say "clang: NOT FINISHED within $seconds s; raise FOREBAY_TEST_MINUTES"
    return 0
  fi
  [[ $status -eq 0 ]] || return "$status"
  to_log clang-test ctest --preset fuzz -j "$jobs" || return
  say "clang: $(sed -n 's/^100% tests passed, .* out of \([0-9]*\)$/all \1/p' \
    "$log_folder/clang-test.log") fast tests pass under ASan and UBSan"
}

stage_fuzz() {
  local name corpus program count=0 scratch status=0
  if [[ ! -s build/fuzz/fuzzers.txt ]]; then
    say "fuzz: no fuzzer is built"
    return 0
  fi
  while read -r name corpus; do
    [[ -n "$name" ]] || continue
    if [[ $(left) -lt $fuzz_seconds ]]; then
      say "fuzz: NOT RUN from $name on, the tests must start"
      return "$status"
    fi
    program=$(find build/fuzz -type f -name "$name" -perm -u+x -print -quit)
    if [[ -z "$program" ]]; then
      # Its build failed. The others still have something to say.
      say "fuzz: $name is NOT BUILT"
      status=1
      continue
    fi
    # New inputs go to a scratch corpus; only a failing one is worth keeping in the tree.
    scratch=build/fuzz/found/$name
    mkdir -p "$scratch"
    to_log "fuzz-$name" "$program" \
      -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
      -artifact_prefix="$scratch/" "$scratch" "$corpus" || return
    count=$((count + 1))
  done <build/fuzz/fuzzers.txt
  say "fuzz: $count fuzzer(s), $fuzz_seconds s each"
  return "$status"
}

# ctest's closing lines come last, after what the stages cost.
stage_test() {
  local status=0 summary=$log_folder/test-summary
  : >"$summary"
  ctest --preset ci -j "$test_jobs" </dev/null |
    sed --unbuffered "/tests passed, .* failed out of/,\$ { w $summary
      d
    }" || status=$?
  cpu_seconds "$log_folder/times"
  say "CPU seconds, user and system:$cost test $((cpu - counted))"
  cat "$summary"
  return "$status"
}

stage_workflow() { cmake --workflow --preset "$1" </dev/null; }

# soak [ARGUMENTS OF CTEST...]
stage_soak() {
  to_log soak-configure cmake --preset release || return
  to_log soak-build cmake --build --preset release -j "$jobs" || return
  ctest --preset soak "$@" </dev/null
}

stages=(packages build test)
soak_arguments=()
case "${1:-}" in
  "") ;;
  --stage)
    shift
    stages=("$@")
    ;;
  --soak)
    if [[ ! "${2:-}" =~ ^[0-9]+$ ]]; then
      printf 'deploy/test.sh: --soak MINUTES: for how long?\n' >&2
      exit 2
    fi
    export FOREBAY_SOAK_MINUTES=$2
    stages=(packages soak)
    # Tests of that name last FOREBAY_SOAK_MINUTES; what they say is the point of running them.
    soak_arguments=(-R '_soak$' -V)
    ;;
  *)
    sed -n '2,24s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    [[ "$1" == -h || "$1" == --help ]] && exit 0 || exit 2
    ;;
esac
for stage in "${stages[@]}"; do
  case "$stage" in
    packages | build | clang | client | fuzz | test | tsan | tidy | coverage | soak) ;;
    *)
      printf 'deploy/test.sh: unknown stage %s\n' "$stage" >&2
      exit 2
      ;;
  esac
done

mkdir -p "$log_folder"
failed=()
cpu=0 counted=0 cost=""  # CPU seconds so far, of them before this stage, and each stage's in words
for stage in "${stages[@]}"; do
  started=$SECONDS
  say "stage $stage, $jobs job(s), $((SECONDS / 60)) min in"
  status=0
  case "$stage" in
    packages) stage_packages "${stages[@]}" || status=$? ;;
    client | tsan | tidy | coverage) stage_workflow "$stage" || status=$? ;;
    soak) stage_soak "${soak_arguments[@]}" || status=$? ;;
    *) "stage_$stage" || status=$? ;;
  esac
  cpu_seconds "$log_folder/times"
  stage_cpu=$((cpu - counted)) counted=$cpu
  cost+=" $stage $stage_cpu,"
  if [[ $status -ne 0 ]]; then
    failed+=("$stage")
    say "stage $stage FAILED after $((SECONDS - started)) s"
    # Without packages or a build the rest has nothing to say.
    [[ "$stage" == packages || "$stage" == build ]] && break
  elif [[ "$stage" != "${stages[-1]}" ]]; then
    say "stage $stage passed in $((SECONDS - started)) s, $stage_cpu CPU seconds"
  fi
done
if [[ ${#failed[@]} -gt 0 ]]; then
  say "FAILED: ${failed[*]}"
  exit 1
fi
