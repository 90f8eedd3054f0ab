#!/usr/bin/env bash
# From a bare Debian 12 machine to a network trained on Fashion-MNIST through forebayd:
# installs packages, builds, unzips the data set into a folder that plays the GFS, starts the
# daemon, stages the data set, trains, prints what the tiers did, and stops the daemon.
#
#   deploy/quickstart.sh [--until packages|build|data|stage|train] [-- FLAGS OF forebay-train]
#
# Everything lies under build/quickstart (FOREBAY_QUICKSTART_DIR); a second run skips what is
# done. FOREBAY_JOBS sets the parallelism of the build; FOREBAY_DAEMON_CGROUP is the folder of a
# cgroup that the daemon joins, so that its memory is counted apart from the trainer's.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/cpu_seconds.sh
readonly source_folder=$PWD
readonly steps=(packages build data stage train)

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
fail() {
  printf 'quickstart: %s\n' "$1" >&2
  exit 1
}

last_step=train
trainer_flags=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --until)
      [[ " ${steps[*]} " == *" ${2:-} "* ]] || fail "--until takes one of: ${steps[*]}"
      last_step=$2
      shift 2
      ;;
    --)
      shift
      trainer_flags=("$@")
      break
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done

place=${FOREBAY_QUICKSTART_DIR:-$source_folder/build/quickstart}
mkdir -p "$place"
place=$(cd "$place" && pwd)
readonly place build_folder=$place/build gfs_folder=$place/gfs ssd_folder=$place/ssd
readonly log_folder=$place/log
mkdir -p "$gfs_folder" "$ssd_folder" "$log_folder" "$place/state"

# A Unix socket's path may have 107 bytes, so it does not lie in the (maybe deep) build folder.
runtime_folder=$(mktemp -d "${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/forebay.XXXXXX")
readonly runtime_folder socket=$runtime_folder/forebayd.sock
daemon_pid=
export FOREBAY_JOB_ID=quickstart  # daemon and clients agree on it, whatever the caller's says

# stop_daemon: SIGTERM drains; what has not gone after ten seconds is killed.
stop_daemon() {
  [[ -n "$daemon_pid" ]] || return 0
  kill -TERM "$daemon_pid" 2>/dev/null || true
  for _ in $(seq 100); do
    kill -0 "$daemon_pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$daemon_pid" 2>/dev/null || true
  wait "$daemon_pid" 2>/dev/null || true
  daemon_pid=
}
clean_up() {
  stop_daemon
  rm -rf "$runtime_folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step_number=0
begin() {
  step_number=$((step_number + 1))
  printf '[%d/%d] %s\n' "$step_number" "${#steps[@]}" "$1"
}
step_packages() {
  begin "packages"
  deploy/install_packages.sh build run trainer </dev/null
}

step_build() {
  local jobs memory_jobs
  # A LibTorch source takes 1.4 GB.
  memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1024 / 1800) }' /proc/meminfo)
  jobs=$(nproc)
  jobs=${FOREBAY_JOBS:-$((memory_jobs < 1 ? 1 : memory_jobs < jobs ? memory_jobs : jobs))}
  begin "build, $jobs job(s); the first time takes minutes"
  if ! cmake --preset release -B "$build_folder" -DFOREBAY_BUILD_TESTS=OFF \
    -DFOREBAY_BUILD_BENCH=OFF -DFOREBAY_UNITY_BUILD=ON >"$log_folder/configure.log" 2>&1; then
    tail -n 30 "$log_folder/configure.log" >&2
    fail "configuring failed; the whole log: $log_folder/configure.log"
  fi
  local program
  for program in forebayd forebay_cli forebay_train; do
    ninja -C "$build_folder" -t query "$program" >/dev/null 2>&1 ||
      fail "this tree does not build $program; see $log_folder/configure.log"
  done
  NINJA_STATUS='  [%f/%t] ' cmake --build "$build_folder" -j "$jobs" \
    --target forebayd forebay_cli forebay_train
  cmake --install "$build_folder" --prefix "$place/install" --component programs >/dev/null
}

# Debian ships the four IDX files gzipped; Forebay reads IDX as it is.
step_data() {
  begin "data: Fashion-MNIST into $gfs_folder, which plays the GFS"
  local packed name target count=0
  while read -r packed; do
    name=$(basename "$packed" .gz)
    target=$gfs_folder/fashion-mnist/$name
    count=$((count + 1))
    [[ ! -s "$target" || "$packed" -nt "$target" ]] || continue
    mkdir -p "$gfs_folder/fashion-mnist"
    zcat "$packed" >"$target.part"
    mv "$target.part" "$target"
  done < <(dpkg -L dataset-fashion-mnist | grep -- '-ubyte\.gz$')
  [[ $count -eq 4 ]] || fail "dataset-fashion-mnist has $count IDX files, not 4"
  du -sh --apparent-size "$gfs_folder/fashion-mnist" | awk '{ print "  " $1 " in 4 files" }'
}

write_daemon_config() {
  cat >"$runtime_folder/forebayd.toml" <<TOML
[daemon]
socket = "$socket"
state_dir = "$place/state"
job_id = "$FOREBAY_JOB_ID"

[tier.ram]
capacity = "256MiB"

[tier.ssd]
directory = "$ssd_folder"
capacity = "1GiB"

[slots]
capacity = "64MiB"

[[dataset]]
name = "fashion-mnist-train"
path = "$gfs_folder/fashion-mnist"
format = "idx"
files = ["images=train-images-idx3-ubyte", "labels=train-labels-idx1-ubyte"]
stage_at_start = false
persist = true

[[dataset]]
name = "fashion-mnist-test"
path = "$gfs_folder/fashion-mnist"
format = "idx"
files = ["images=t10k-images-idx3-ubyte", "labels=t10k-labels-idx1-ubyte"]
stage_at_start = false
persist = true
TOML
}

forebay() { "$place/install/bin/forebay" --socket "$socket" "$@"; }

start_daemon() {
  write_daemon_config
  (
    [[ -z "${FOREBAY_DAEMON_CGROUP:-}" ]] ||
      printf '%d\n' "$BASHPID" >"$FOREBAY_DAEMON_CGROUP/cgroup.procs"
    exec "$place/install/bin/forebayd" --config "$runtime_folder/forebayd.toml"
  ) >"$log_folder/forebayd.log" 2>&1 </dev/null &
  daemon_pid=$!
  for _ in $(seq 150); do
    forebay status >/dev/null 2>&1 && return 0
    kill -0 "$daemon_pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 30 "$log_folder/forebayd.log" >&2
  fail "forebayd did not answer within 15 s; its log: $log_folder/forebayd.log"
}

step_stage() {
  begin "stage: from the GFS to the SSD and RAM tiers"
  start_daemon
  forebay stage fashion-mnist-train
  forebay stage fashion-mnist-test
}

step_train() {
  begin "train: minibatches streamed by forebayd"
  "$place/install/bin/forebay-train" --address "unix:$socket" \
    --summary-json "$runtime_folder/train.json" "${trainer_flags[@]}"
  printf '\n'
  forebay report --trainer "$runtime_folder/train.json"
}

started=$SECONDS
counted=0 cost=''  # CPU seconds so far; those of each step, in words
for step in "${steps[@]}"; do
  "step_$step"
  cpu_seconds "$log_folder/times"
  cost+=" $step $((cpu - counted)),"
  counted=$cpu
  [[ "$step" != "$last_step" ]] || break
done
stop_daemon
printf 'quickstart: CPU seconds, user and system:%s\n' "${cost%,}"
printf 'quickstart: done in %d s\n' "$((SECONDS - started))"
