#!/usr/bin/env bash
# The C interface against the Rust client: both in turns against one server, client on one core and
# server on another where there are two. Prints the medians and what C reaches of Rust.
#
#   bindings/c/bench.sh [rounds 9] [seconds 1]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-9} seconds=${2:-1}
target=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release -p fairlock-c -p fairlock-server --lib --bins --example bench

work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
BUILD=no PREFIX=$work bindings/c/install.sh >/dev/null
cc -O2 -I"$work/include" bindings/c/bench.c -o "$work/bench" -L"$work/lib" "-Wl,-rpath,$work/lib" \
    -lfairlock -pthread

client=() serve=()
if [ "$(nproc)" -gt 1 ]; then client=(taskset -c 0) serve=(taskset -c 1); fi
"${serve[@]}" "$target/release/fairlock" --ephemeral --listen 127.0.0.1:0 >"$work/out" 2>/dev/null &
server=$!
until grep -q '^listening on ' "$work/out"; do sleep 0.05; done
FAIRLOCK_SERVERS=$(sed -n 's/^listening on //p' "$work/out")
export FAIRLOCK_SERVERS

# Each goes first in every other round: what comes second finds the machine as the first one left it.
measure() { # rust or c
    local program=$work/bench
    [ "$1" = c ] || program=$target/release/examples/bench
    "${client[@]}" "$program" --seconds "$seconds" | sed "s/^/$1 /"
}
for ((round = 0; round < rounds; round++)); do
    if ((round % 2 == 0)); then measure rust && measure c; else measure c && measure rust; fi
done >"$work/figures"

for what in one_at_a_time callbacks; do
    median() { grep "^$1 $what " "$work/figures" | sort -nk3 | awk '{ a[NR] = $3 } END { print a[int((NR + 1) / 2)] }'; }
    awk -v what=$what -v c="$(median c)" -v rust="$(median rust)" \
        'BEGIN { printf "%-14s C %8d /s   Rust %8d /s   %.2f\n", what, c, rust, c / rust }'
done
