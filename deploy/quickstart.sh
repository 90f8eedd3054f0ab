#!/usr/bin/env bash
# From a bare Debian 12 machine to a network trained on Fashion-MNIST through forebayd:
# installs packages, builds, unzips the data set into a folder that plays the GFS, starts the
# daemon, stages the data set, trains, prints what the tiers did, and stops the daemon. Then it
# trains on two daemons that share the reading, as two nodes of a job do.
#
#   deploy/quickstart.sh [--until packages|build|data|stage|train|nodes] [-- FLAGS OF forebay-train]
#
# Everything lies under build/quickstart (FOREBAY_QUICKSTART_DIR); a second run skips what is
# done. FOREBAY_JOBS sets the parallelism of the build; FOREBAY_DAEMON_CGROUP is the folder of a
# cgroup that the daemon joins, so that its memory is counted apart from the trainer's.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/cpu_seconds.sh
readonly source_folder=$PWD
readonly steps=(packages build data stage train nodes)

usage() { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
fail() {
  printf 'quickstart: %s\n' "$1" >&2
  exit 1
}

last_step=nodes
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
node_pids=()
export FOREBAY_JOB_ID=quickstart  # daemon and clients agree on it, whatever the caller's says

# stop PID: SIGTERM drains a daemon; what has not gone after ten seconds is killed.
stop() {
  kill -TERM "$1" 2>/dev/null || true
  for _ in $(seq 100); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}
stop_daemon() {
  [[ -z "$daemon_pid" ]] || stop "$daemon_pid"
  daemon_pid=
}
stop_nodes() {
  local pid
  for pid in "${node_pids[@]}"; do stop "$pid"; done
  node_pids=()
}
clean_up() {
  stop_daemon
  stop_nodes
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
  # Nothing is measured here, so -O3 stays with the codecs, whose targets ask for it themselves.
  if ! cmake --preset release -B "$build_folder" -DFOREBAY_BUILD_TESTS=OFF \
    -DFOREBAY_BUILD_BENCH=OFF -DFOREBAY_UNITY_BUILD=ON \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" >"$log_folder/configure.log" 2>&1; then
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
# Small ones, so that two nodes have something to share.
extent = "4MiB"
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

forebay() { "$place/install/bin/forebay" "$@"; }

start_daemon() {
  write_daemon_config
  (
    [[ -z "${FOREBAY_DAEMON_CGROUP:-}" ]] ||
      printf '%d\n' "$BASHPID" >"$FOREBAY_DAEMON_CGROUP/cgroup.procs"
    exec "$place/install/bin/forebayd" --config "$runtime_folder/forebayd.toml"
  ) >"$log_folder/forebayd.log" 2>&1 </dev/null &
  daemon_pid=$!
  for _ in $(seq 150); do
    forebay --socket "$socket" status >/dev/null 2>&1 && return 0
    kill -0 "$daemon_pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 30 "$log_folder/forebayd.log" >&2
  fail "forebayd did not answer within 15 s; its log: $log_folder/forebayd.log"
}

step_stage() {
  begin "stage: from the GFS to the SSD and RAM tiers"
  start_daemon
  forebay --socket "$socket" stage fashion-mnist-train
  forebay --socket "$socket" stage fashion-mnist-test
}

step_train() {
  begin "train: minibatches streamed by forebayd"
  "$place/install/bin/forebay-train" --address "unix:$socket" \
    --summary-json "$runtime_folder/train.json" "${trainer_flags[@]}"
  printf '\n'
  forebay --socket "$socket" report --trainer "$runtime_folder/train.json"
}

# Starts the daemons of two nodes on this machine. What is a node's own is given on the command
# line; the configuration is the same.
start_nodes() {
  local rank folder
  mkdir -p "$runtime_folder/rendezvous"
  for rank in 0 1; do
    folder=$place/node$rank
    rm -rf "$folder"
    mkdir -p "$folder/ssd" "$folder/state" "$runtime_folder/node$rank"
    "$place/install/bin/forebayd" --config "$runtime_folder/forebayd.toml" \
      --socket "$runtime_folder/node$rank/forebayd.sock" --node-rank "$rank" --node-count 2 \
      --set nodes.rendezvous="directory:$runtime_folder/rendezvous" --set peer.interface=lo \
      --set tier.ssd.directory="$folder/ssd" --set daemon.state_dir="$folder/state" \
      >"$log_folder/forebayd-node$rank.log" 2>&1 </dev/null &
    node_pids+=($!)
  done
  for rank in 0 1; do
    for _ in $(seq 150); do
      forebay --socket "$runtime_folder/node$rank/forebayd.sock" status >/dev/null 2>&1 &&
        continue 2
      sleep 0.1
    done
    tail -n 30 "$log_folder/forebayd-node$rank.log" >&2
    fail "node $rank did not answer within 15 s; its log: $log_folder/forebayd-node$rank.log"
  done
}

# digest SUMMARY: of the weights that a run ended in.
digest() { sed -n 's/^ *"weights_digest": "\([0-9a-f]*\)".*/\1/p' "$1"; }

# A part of an epoch, so that it takes seconds. One thread and a fixed micro-batch, so that one
# process and two of them compute the same sums.
step_nodes() {
  begin "nodes: a part of an epoch, on one daemon and on two that share the reading"
  local -r run=(--epochs 1 --train-selection range:0:12800 --evaluate-every-epochs 0 --threads 1
    --micro-batch 32)
  local alone together
  "$place/install/bin/forebay-train" --address "unix:$socket" "${run[@]}" \
    --summary-json "$runtime_folder/alone.json" >"$log_folder/train-alone.log" 2>&1 ||
    fail "training on one daemon failed; its log: $log_folder/train-alone.log"
  stop_daemon
  start_nodes
  # Open MPI sets the rank of each process, which chooses its daemon.
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 bash -c '
    folder=$1 trainer=$2
    shift 2
    exec "$trainer" --address "unix:$folder/node$OMPI_COMM_WORLD_RANK/forebayd.sock" "$@"' \
    bash "$runtime_folder" "$place/install/bin/forebay-train" "${run[@]}" \
    --summary-json "$runtime_folder/together.json" >"$log_folder/train-nodes.log" 2>&1 ||
    fail "training on two daemons failed; its log: $log_folder/train-nodes.log"
  forebay --socket "$runtime_folder/node0/forebayd.sock" status --nodes
  stop_nodes
  alone=$(digest "$runtime_folder/alone.json")
  together=$(digest "$runtime_folder/together.json")
  printf '  weights digest on one daemon %s, on two %s\n' "$alone" "$together"
  [[ -n "$alone" && "$alone" == "$together" ]] || fail "the two runs ended in different weights"
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
stop_nodes
printf 'quickstart: CPU seconds, user and system:%s\n' "${cost%,}"
printf 'quickstart: done in %d s\n' "$((SECONDS - started))"
