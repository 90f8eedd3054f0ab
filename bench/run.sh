#!/usr/bin/env bash
# Runs a benchmark suite: bench/run.sh SUITE [--quick] [--json FILE] [--build DIR] [--data DIR]
# Exit status: 0 all goals met, 1 a goal missed or a peer missing, 2 wrong usage.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# The first Python that can import what the harness needs.
for python in "${FOREBAY_BENCH_PYTHON:-}" python3.11 python3 /usr/bin/python3; do
  if [[ -n "$python" ]] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' \
      2>/dev/null; then
    export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
    export PYTHONDONTWRITEBYTECODE=1
    exec "$python" -m harness "$@"
  fi
done
echo "bench/run.sh: needs Python 3.9 or later" >&2
exit 2
