#!/usr/bin/env bash
# Tests the C library as a user gets it: installs it to a temporary prefix, builds the C and C++ programs
# of tests/programs and the examples against it with pkg-config, and runs them, also under valgrind.
#
#   bindings/c/test.sh             everything
#   BUILD=no bindings/c/test.sh    without cargo: what is in the target folder
#   bindings/c/test.sh callbacks   the jobs whose name contains a word
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root" || exit

missing=0
for need in cc:gcc c++:g++ pkg-config:pkg-config valgrind:valgrind readelf:binutils cargo:cargo; do
    command -v "${need%%:*}" >/dev/null && continue
    echo "bindings/c/test.sh needs ${need%%:*} (Debian package ${need##*:})" >&2
    missing=1
done
[ $missing = 0 ] || exit 69

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/fairlock/target}"
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
export RUST_BACKTRACE=0
unset FAIRLOCK_SERVERS FAIRLOCK_SECRET FAIRLOCK_SECRET_FILE

passed=0 failed=0
verdict() { # status, name
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    if [ "$1" = 0 ]; then echo "ok   $2"; else echo "FAIL $2"; fi
}

if [ "${BUILD:-yes}" = yes ]; then
    # The whole workspace at once, so that nothing is compiled twice with other features; the Python
    # crate belongs to maturin.
    workspace=(--workspace --exclude fairlock-python)
    cargo build --quiet "${workspace[@]}" || exit
    cargo build --quiet "${workspace[@]}" --example test_certificates || exit
    cargo test --quiet "${workspace[@]}" --test header --test border || exit
fi

work=$(mktemp -d) || exit
serving=
cleanup() {
    [ -z "$serving" ] || kill "$serving" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
export FAIRLOCK_TEST_CERTIFICATES=$work/certificates
mkdir "$FAIRLOCK_TEST_CERTIFICATES"
"$CARGO_TARGET_DIR/debug/examples/test_certificates" "$FAIRLOCK_TEST_CERTIFICATES" || exit

# ── the installed library ─────────────────────────────────────────────────────────────────────────────

prefix=$work/prefix
BUILD=no PROFILE=debug PREFIX=$prefix "$here/install.sh" >"$work/install.log" || exit
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
version=$(sed -n 's/^#define FAIRLOCK_VERSION "\(.*\)"/\1/p' "$here/include/fairlock.h")
library=$prefix/lib/libfairlock.so.$version

installed() {
    local name
    for name in "lib/libfairlock.so.$version" "lib/libfairlock.so.${version%%.*}" lib/libfairlock.so \
        lib/libfairlock.a lib/pkgconfig/fairlock.pc include/fairlock.h; do
        [ -e "$prefix/$name" ] || { echo "$name is not there" && return 1; }
    done
    [ "$(pkg-config --modversion fairlock)" = "$version" ]
}

# A packager's way: everything below DESTDIR, and no trace of it in the files.
staged() {
    BUILD=no PROFILE=debug PREFIX=/opt/fairlock DESTDIR=$work/stage "$here/install.sh" >/dev/null &&
        [ -e "$work/stage/opt/fairlock/lib/libfairlock.so" ] &&
        [ "$(find "$work/stage" -mindepth 1 -maxdepth 1)" = "$work/stage/opt" ] &&
        ! grep -q "$work" "$work/stage/opt/fairlock/lib/pkgconfig/fairlock.pc" &&
        grep -qx 'prefix=/opt/fairlock' "$work/stage/opt/fairlock/lib/pkgconfig/fairlock.pc"
}

soname() { readelf -d "$library" | grep -q "SONAME.*\[libfairlock.so.${version%%.*}\]"; }

# Every function of the header is there, and nothing else is.
symbols() {
    diff <(nm -D --defined-only "$library" | awk '$2 == "T" { print $3 }' | sort) \
        <(grep -oE '\bfairlock_[a-z_]+\(' "$here/include/fairlock.h" | grep -vE ' ' | tr -d '(' |
            sort -u)
}

for check in installed staged soname symbols; do
    $check >"$work/$check.log" 2>&1
    status=$?
    verdict $status "library: $check"
    [ $status = 0 ] || cat "$work/$check.log"
done

# ── building against it ───────────────────────────────────────────────────────────────────────────────

# shellcheck disable=SC2207
flags=($(pkg-config --cflags fairlock)) libs=($(pkg-config --libs fairlock) "-Wl,-rpath,$prefix/lib")
strict=(-Wall -Wextra -Werror -pedantic -g -O1)
programs=$here/tests/programs

compile() { # name, compiler and arguments…
    local name=$1
    shift
    "$@" >"$work/$name.build" 2>&1
    local status=$?
    [ $status = 0 ] || cat "$work/$name.build"
    return $status
}

builds=()
build() { # name, compiler and arguments…
    compile "$@" &
    builds+=("$!:$1")
}
for name in locks errors callbacks threads forks tls cluster serve; do
    build "$name" cc -std=c99 "${strict[@]}" "${flags[@]}" "$programs/$name.c" -o "$work/$name" \
        "${libs[@]}" -pthread
done
for standard in 11 20; do
    build "raii$standard" c++ "-std=c++$standard" "${strict[@]}" "${flags[@]}" "$programs/raii.cpp" \
        -o "$work/raii$standard" "${libs[@]}" -pthread
done
# shellcheck disable=SC2046
build static cc -std=c99 "${strict[@]}" "${flags[@]}" "$programs/locks.c" -o "$work/static" \
    "$prefix/lib/libfairlock.a" $(pkg-config --static --libs-only-l fairlock | sed 's/-lfairlock//')
for name in first_lock scheduled_job leader_election protected_resource; do
    build "example_$name" cc -std=c99 "${strict[@]}" "${flags[@]}" "examples/c/$name.c" \
        -o "$work/example_$name" "${libs[@]}" -pthread
done
# The README's first program is one that compiles.
awk '/^```/ { inside = ($0 == "```c" && !seen++); next } inside' "$here/README.md" >"$work/readme.c"
build readme cc -std=c99 "${strict[@]}" "${flags[@]}" "$work/readme.c" -o "$work/readme" "${libs[@]}"
build bench cc -std=c99 "${strict[@]}" "${flags[@]}" "$here/bench.c" -o "$work/bench" "${libs[@]}" \
    -pthread
for started in "${builds[@]}"; do
    wait "${started%%:*}"
    status=$?
    [ $status = 0 ] || verdict $status "build: ${started##*:}"
done
[ $failed = 0 ] || { echo "c: $passed passed, $failed failed" && exit 1; }

# ── running ───────────────────────────────────────────────────────────────────────────────────────────

memcheck=(valgrind --quiet "--suppressions=$here/tests/valgrind.supp" --error-exitcode=9 --leak-check=full --show-leak-kinds=all
    --errors-for-leak-kinds=all --fair-sched=yes)
# A child that was forked while threads ran cannot free what they held: there only errors count.
memcheck_forks=(valgrind --quiet --error-exitcode=9 --leak-check=no --fair-sched=yes)

mkfifo "$work/end"
"$work/serve" <"$work/end" >"$work/address" &
serving=$!
exec 3>"$work/end"
until [ -s "$work/address" ]; do
    kill -0 $serving || exit
    sleep 0.01
done
address=$(cat "$work/address")

# Runs an example and compares what it prints.
example() { # name, command…
    local name=$1
    shift
    FAIRLOCK_SERVERS=$address timeout 60 "$@" >"$work/$name.out" || return
    diff "examples/expected/${name##*_language_}.txt" \
        <(sed -E 's/token [0-9]+/token N/' "$work/$name.out")
}

jobs_run=()
run() { # name, command…
    [[ "$1" == *"$word"* ]] || return 0
    while [ "$(jobs -rp | grep -vcx "$serving")" -ge "${JOBS:-2}" ]; do wait -n; done
    local name=$1
    shift
    { "$@" >"$work/run_$name.log" 2>&1 && echo 0 || echo 1; } >"$work/run_$name.status" &
    jobs_run+=("$name")
}
word=${1:-}

for name in locks errors callbacks threads forks tls cluster raii11 raii20 static; do
    run "$name" timeout 300 "$work/$name"
done
for name in locks errors callbacks threads tls cluster raii11; do
    run "$name-valgrind" timeout 600 "${memcheck[@]}" "$work/$name"
done
run forks-valgrind timeout 600 "${memcheck_forks[@]}" "$work/forks"
# One after the other: an example may take what another one of its kind waits for.
examples() {
    local name status=0
    for name in first_lock scheduled_job leader_election protected_resource; do
        echo "── $name"
        example "c_language_$name" "$work/example_$name" || status=1
        example "rust_language_$name" "$CARGO_TARGET_DIR/debug/$name" || status=1
    done
    return $status
}
run examples examples
run bench-briefly env FAIRLOCK_SERVERS="$address" timeout 60 "$work/bench" --seconds 0.2

while [ "$(jobs -rp | grep -vcx "$serving")" -gt 0 ]; do wait -n; done
for name in "${jobs_run[@]}"; do
    status=$(cat "$work/run_$name.status")
    tests=$(grep -c '^ok ' "$work/run_$name.log")
    [ "$status" = 0 ] && [ "$tests" -gt 1 ] && passed=$((passed + tests - 1))
    verdict "$status" "$name$([ "$tests" -gt 0 ] && echo " ($tests tests)")"
    # What the program says, and where valgrind saw the first fault.
    [ "$status" = 0 ] || { grep -v '^==' "$work/run_$name.log"; grep -m 40 '^==' "$work/run_$name.log"; }
    [ "$name" = bench-briefly ] && cat "$work/run_$name.log"
done
exec 3>&-
wait "$serving" || verdict 1 "the server of the examples ends well"
serving=

echo "c: $passed passed, $failed failed"
[ $failed = 0 ]
