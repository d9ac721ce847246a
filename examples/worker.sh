#!/usr/bin/env bash
# A worker in Bash, with curl and jq. It serves the type "checksum", in the queue "sh":
#   OUTLAST_SERVER=http://127.0.0.1:5278 OUTLAST_KEY=olk_… ./worker.sh
set -uo pipefail

checksum() { # the payload is standard input, the result (JSON) standard output
  jq -j '.text // error("no text")' | sha256sum | jq -R '{sha256: .[:64]}'
}

leases=${OUTLAST_SERVER:-http://127.0.0.1:5278}/api/v1/leases
worker=sh-$HOSTNAME-$$
going=yes
trap 'going=' TERM # take nothing more, give back what has not begun
errors=$(mktemp) && trap 'rm -f "$errors"' EXIT

# post PATH < BODY: the answer; fails when it is refused. The key is not for the list of processes.
post() {
  curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-connrefused --json @- "$leases$1" \
    -K <(printf 'header = "%s"\n' "${OUTLAST_KEY:+authorization: Bearer $OUTLAST_KEY}")
}

run() { # LEASE TYPE PAYLOAD
  local result beat job
  exec 3< <("$2" <<<"$3" 2>"$errors") && job=$!
  while sleep 3; do # a refusal, or a cancelled task, ends the work
    post "/$1/heartbeat" <<<'{}' | jq -e '.until and (.cancel | not)' || { pkill -P "$job"; kill "$job"; break; }
  done >/dev/null 2>&1 3<&- & beat=$!
  result=$(cat <&3) && wait "$job"
  local code=$?
  kill "$beat" 2>/dev/null
  if [[ $code -eq 0 ]]; then
    jq '{result: .}' <<<"$result" | post "/$1/complete"
  elif [[ $code -eq 143 ]]; then # SIGTERM: stopped by the heartbeat
    post "/$1/release" <<<'{}'
  else
    jq -R --slurp '{error: {type: "ExitCode", message: .}}' "$errors" | post "/$1/fail"
  fi >/dev/null || echo "$1: lost, stopped" >&2
}

while [[ $going ]]; do
  ask=$(jq -n --arg worker "$worker" --arg token "$(</proc/sys/kernel/random/uuid)" \
    '{$worker, $token, queues: ["sh"], types: ["checksum"], max: 5, wait: 20}') || continue # SIGTERM
  claim=$(post "" <<<"$ask") || { [[ $going ]] && sleep 1; continue; }
  while IFS=$'\t' read -r lease type payload; do
    if [[ $going ]]; then run "$lease" "$type" "$payload"; else post "/$lease/release" <<<'{}'; fi
  done < <(jq -r '.items[] | [.lease, .task.type, (.task.payload | tojson)] | join("\t")' <<<"$claim")
done
