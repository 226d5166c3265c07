#!/usr/bin/env bash
# tests/workflows.sh
#
# Checks the workflows and the forms for issues in .github: their schemas, and what zizmor knows of dangerous workflows.
# Both tools come from PyPI into target/workflows/, once. Nothing else is asked of the network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=(zizmor==1.32.0 check-jsonschema==0.39.0)
venv=target/workflows

die() {
  printf 'workflows.sh: %s\n' "$@" >&2
  exit 1
}

# The file `tools` is written last, so a venv that broke off is made again.
if [[ $(cat $venv/tools 2>/dev/null) != "${tools[*]}" ]]; then
  rm -rf $venv
  python3 -m venv $venv || die "cannot make a venv: apt-get install python3-venv"
  $venv/bin/pip install --quiet --disable-pip-version-check "${tools[@]}" || die "pip could not install ${tools[*]}"
  echo "${tools[*]}" >$venv/tools
fi

$venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
$venv/bin/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
$venv/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
$venv/bin/zizmor --offline --no-progress --quiet --strict-collection .github
