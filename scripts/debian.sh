# shellcheck shell=bash
# To be sourced. install HINT PACKAGES… installs Debian's packages as root. Files of configuration that are there stay.
# Where it cannot, it says the hint and ends the script.
install() {
  local hint=$1 log
  shift
  if ! command -v apt-get >/dev/null || (( $(id -u) != 0 )); then
    echo "$hint (Debian: apt-get install $*)" >&2
    exit 1
  fi
  echo "installing $*" >&2
  log=$(mktemp)
  if ! { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update &&
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
      -o Dpkg::Options::=--force-confold "$@"; } </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  rm -f "$log"
}
