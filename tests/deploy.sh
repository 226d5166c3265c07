#!/usr/bin/env bash
# tests/deploy.sh [DIRECTORY]
#
# Checks the recipes in examples/deploy, or in a copy of it: the units with systemd-analyze, the manifests against the
# schemas of Kubernetes, which a package of PyPI has, and the crontab. Then the facts that no schema knows, such as the
# right ACL line and waits that are longer than a quarantine. It starts no server, and needs no cluster.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
recipes=${1:-examples/deploy}
validator=kubernetes-validate==1.37.0
venv=target/${validator/==/-}

die() {
  printf 'deploy: %s\n' "$@" >&2
  exit 1
}

install_systemd() {
  command -v apt-get >/dev/null || die "no systemd-analyze and no apt-get: install the package systemd"
  local as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends systemd ||
    die "apt-get could not install systemd"
}

# The venv gets its name when it is complete. So one that was broken off is not used.
install_validator() {
  local python
  rm -rf "$venv.new"
  for python in python3 /usr/bin/python3; do
    if $python -m venv "$venv.new" && "$venv.new/bin/python" -m pip install --quiet "$validator"; then
      mv "$venv.new" "$venv"
      return
    fi
  done
  die "could not install $validator with pip in a venv (Debian: apt-get install python3-venv)"
}

check_units() {
  local found
  cp "$recipes"/systemd/* "$scratch"
  # systemd-analyze wants programs that are there.
  sed -i 's#=/usr/local/bin/quorate #=/bin/true #' "$scratch"/*.service
  # It ends with 0 when it ignores an unknown setting, so it has to print nothing too.
  found=$(systemd-analyze verify --man=no --recursive-errors=no "$scratch"/*.{service,timer} 2>&1) && [[ -z $found ]] ||
    die "systemd-analyze verify:" "$found"
}

command -v systemd-analyze >/dev/null || install_systemd
command -v systemd-analyze >/dev/null || die "systemd-analyze is still missing"
mkdir -p target
[[ -d $venv ]] || install_validator
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check_units
# A venv may have moved with the checkout, so its scripts are not called by their first line.
"$venv/bin/python" -m kubernetes_validate --strict --quiet -k 1.31 -k 1.37 "$recipes"/kubernetes/*.yaml \
  >"$scratch/found" 2>&1 || die "kubernetes-validate:" "$(<"$scratch/found")"
"$venv/bin/python" tests/deploy.py "$recipes"
