# shellcheck shell=bash
# Sourced by the scripts of this folder.

# cpu_seconds FILE: sets `cpu` to the user and system time, in whole seconds, of all processes that
# the script has waited for. `times` counts for the shell that runs it, so it may not stand in a
# command substitution or a pipe, and writes to FILE.
cpu_seconds() {
  times >"$1"
  cpu=$(awk 'NR == 2 { for (i = 1; i <= NF; ++i) { split($i, t, "[ms]"); sum += 60 * t[1] + t[2] } }
             END { printf "%d", sum }' "$1")
}
