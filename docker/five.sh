#!/usr/bin/env bash
# docker/five.sh up [--local]   five masters on 127.0.0.1:7001 to 7005; returns when all are healthy
# docker/five.sh down           removes them, and whatever a broken `up` has left
# --local: with the image that docker/image/build.sh makes here, where no registry can be reached.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
files=(-f compose.yaml)
image=${QUORATE_IMAGE:-redis:8}

if docker compose version >/dev/null 2>&1; then
  program=(docker compose)
elif command -v docker-compose >/dev/null; then
  program=(docker-compose)
else
  echo "five.sh: neither 'docker compose' nor 'docker-compose' on this machine" >&2
  exit 1
fi

# Runs compose in a session of its own, out of reach of the terminal's ^C. If compose is broken off half-way, its
# requests are still under way to the daemon, which then makes containers that no `down` has seen. It takes seconds, and
# the traps below act when it has finished.
compose() {
  setsid --wait "${program[@]}" "${files[@]}" "$@"
}

get_image() {
  if [[ ${1:-} == --local ]]; then
    files+=(-f compose.local.yaml)
    image=quorate-local-redis
  fi
  docker image inspect "$image" >/dev/null 2>&1 && return
  if [[ ${1:-} == --local ]]; then
    image/build.sh
  else
    docker pull "$image" || {
      echo "five.sh: no image $image. Where no registry can be reached: make docker-five-up LOCAL=1" >&2
      exit 1
    }
  fi
}

# Waits here and not with `up --wait`, which docker-compose 1.29 does not have.
await_health() {
  local containers healthy deadline=$((SECONDS + 60))
  containers=$(compose ps -q)
  while ((SECONDS < deadline)); do
    # shellcheck disable=SC2086 # five words
    healthy=$(docker inspect --format '{{.State.Health.Status}}' $containers | grep -cx healthy) || true
    if ((healthy == 5)); then
      return
    fi
    sleep 0.2
  done
  compose ps
  compose logs --tail 5
  echo "five.sh: only $healthy of 5 masters became healthy in 60 s" >&2
  return 1
}

down() {
  compose down --remove-orphans --volumes --timeout 2
}

case "$*" in
  up | "up --local")
    # A broken download leaves nothing that runs, so it may be interrupted at any time.
    get_image "${2:-}"
    # From here on it is all or nothing: everything that a failed or interrupted start has made is removed again.
    trap 'trap "" INT TERM; down >&2' EXIT
    trap 'exit 130' INT TERM
    compose up -d
    await_health
    trap - EXIT
    echo "five masters: redis://127.0.0.1:7001 to redis://127.0.0.1:7005; docker/five.sh down removes them"
    ;;
  down) down ;;
  *)
    sed -n '2,4s/^# //p' five.sh >&2
    exit 2
    ;;
esac
