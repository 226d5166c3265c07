#!/usr/bin/env bash
# docker/development.sh   tries examples/compose, with the images that docker/image/build.sh makes here
# A program of `docker compose up` takes a lock at once: on new masters, and on masters that have all restarted. To a
# client without QUORATE_THROWAWAY the same masters are new.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export QUORATE_IMAGE=quorate-local-redis APP_IMAGE=quorate-local-torture

if docker compose version >/dev/null 2>&1; then
  program=(docker compose)
else
  program=(docker-compose)
fi

# Runs in a session of its own, out of reach of the terminal's ^C: see docker/five.sh.
compose() {
  setsid --wait "${program[@]}" --project-name quorate-development --file examples/compose/compose.yaml "$@"
}

die() {
  echo "development.sh: $*" >&2
  exit 1
}

# Runs the app once, and prints its output. It does not wait for a lock (--no-wait), so it shows nothing by taking long.
app() {
  docker rm --force quorate-development-app >/dev/null 2>&1 || true
  compose run --name quorate-development-app -T app 2>&1
}

down() {
  docker rm --force quorate-development-app >/dev/null 2>&1 || true
  compose down --remove-orphans --volumes --timeout 2
}

# The image with quorate is always built, because an old one does not know the setting.
docker image inspect "$QUORATE_IMAGE" >/dev/null 2>&1 || docker/image/build.sh "$QUORATE_IMAGE" >&2
QUORATE_PROFILE=${QUORATE_PROFILE:-dev} docker/image/build.sh "$APP_IMAGE" >&2
trap 'trap "" INT TERM; down >&2' EXIT
trap 'exit 130' INT TERM

voted() {
  local said=$1
  (($(grep -c voting <<<"$said") >= 3)) || die "not all masters vote $2: $said"
}

said=$(app) || die "on new masters: $said"
voted "$said" "when they are new"
for round in 1 2; do
  compose restart --timeout 2 master1 master2 master3
  said=$(app) || die "after restart $round: $said"
  voted "$said" "after restart $round"
done
if said=$(QUORATE_THROWAWAY=0 app); then
  die "a client without QUORATE_THROWAWAY has taken a lock: $said"
fi
grep -q 'quarantine' <<<"$said" || die "the reason is not said: $said"
echo "a program in docker compose takes a lock at once, on new masters and on restarted ones"
