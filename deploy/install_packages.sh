#!/usr/bin/env bash
# Installs the Debian packages of the named groups of deploy/packages.txt, and nothing where all
# are there already.
#
#   deploy/install_packages.sh [--list] [GROUP...]     default: build run trainer test
#   deploy/install_packages.sh all
#
# Needs root or passwordless sudo only when something is missing. Exit status: 0 everything is
# installed, 1 an installation failed, 2 wrong usage, 3 no right to install.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package_file="$here/packages.txt"
known_groups=$(awk '!/^#/ && NF >= 2 { print $1 }' "$package_file" | sort -u | tr '\n' ' ')

say() { printf 'packages: %s\n' "$*"; }
fail() {
  printf 'packages: %s\n' "$2" >&2
  exit "$1"
}

list_only=false
groups=()
for argument in "$@"; do
  case "$argument" in
    --list) list_only=true ;;
    -h | --help)
      sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    all) read -r -a groups <<<"$known_groups" ;;
    -*) fail 2 "unknown option $argument" ;;
    *)
      [[ " $known_groups" == *" $argument "* ]] ||
        fail 2 "unknown group '$argument'; there are: ${known_groups}all"
      groups+=("$argument")
      ;;
  esac
done
[[ ${#groups[@]} -gt 0 ]] || groups=(build run trainer test)

mapfile -t wanted < <(awk -v groups=" ${groups[*]} " \
  '!/^#/ && NF >= 2 && index(groups, " " $1 " ") { print $2 }' "$package_file" | sort -u)
if $list_only; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  fail 3 "apt-get is missing: Forebay is built on Debian 12; elsewhere install by hand what
  $0 --list ${groups[*]}
prints"
fi

# dpkg-query fails for names it never saw, which is an answer here, not an error.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  say "all ${#wanted[@]} of group(s) ${groups[*]} are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    fail 3 "not root and no passwordless sudo; ask an administrator to run
  apt-get install --no-install-recommends ${missing[*]}"
  fi
  as_root=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 \
    -o Dpkg::Options::=--force-confold "$@" >>"$log" 2>&1 </dev/null
}
show_log() {
  tail -n 40 "$log" | sed 's/^/  | /' >&2
}

say "${#missing[@]} of ${#wanted[@]} missing (group(s) ${groups[*]}); reading package lists"
if ! apt update; then
  say "reading package lists failed; one more try in 5 s"
  sleep 5
  apt update || {
    show_log
    fail 1 "package lists could not be read; is the network, or the mirror in /etc/apt, there?"
  }
fi

started=$SECONDS
say "installing ${missing[*]}"
apt install --no-install-recommends "${missing[@]}" || {
  show_log
  fail 1 "installation failed (log above); 'apt-get -f install' may help"
}
say "installed ${#missing[@]} in $((SECONDS - started)) s"
