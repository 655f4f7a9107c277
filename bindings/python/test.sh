#!/usr/bin/env bash
# Builds the wheel, installs it as a user would, and runs the tests. Arguments go to pytest.
# With --install it only installs, and says with which interpreter the package can be used.
#
# FAIRLOCK_VENV             the environment to use          (default: ${XDG_CACHE_HOME:-~/.cache}/fairlock/venv)
# FAIRLOCK_PYTHON           the interpreter to make it with (default: python3)
# FAIRLOCK_PYTHON_PROFILE   dev or release                  (default: dev, which checks all invariants)
# FAIRLOCK_BIN              the real server binary, for tests that kill it (default: built)
set -euo pipefail
cd "$(dirname "$0")"
ROOT="$(cd ../.. && pwd)"

CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/fairlock"
VENV="${FAIRLOCK_VENV:-$CACHE/venv}"
PROFILE="${FAIRLOCK_PYTHON_PROFILE:-dev}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$CACHE/target}"
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
# Without cargo on PATH maturin would fetch a toolchain of its own.
export MATURIN_NO_INSTALL_RUST=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

if ! cmp -s requirements.txt "$VENV/requirements.txt"; then
    [ -x "$VENV/bin/python" ] || "${FAIRLOCK_PYTHON:-python3}" -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --requirement requirements.txt
    cp requirements.txt "$VENV/requirements.txt"
fi
PYTHON="$VENV/bin/python"

# The wheel is made anew only when something that goes into it has changed: by content, since a clone has no old times.
STAMP="$(cd "$ROOT" && {
    echo "$PROFILE" && cat rust-toolchain.toml 2>/dev/null || :
    git ls-files -z --cached --others --exclude-standard -- Cargo.toml Cargo.lock .cargo core bindings/python |
        grep -zv '^bindings/python/\(tests\|bench\|README\)' | sort -z | xargs -0 sha256sum 2>/dev/null || :
} | sha256sum)"
if [ "$STAMP" != "$(cat "$VENV/installed" 2>/dev/null)" ]; then
    WHEELS="$VENV/wheels"
    rm -rf "$WHEELS" "$VENV/installed"
    "$PYTHON" -m maturin build --quiet --profile "$PROFILE" --interpreter "$PYTHON" --out "$WHEELS"
    "$PYTHON" -m pip install --quiet --no-index --no-deps --force-reinstall "$WHEELS"/*.whl
    echo "$STAMP" >"$VENV/installed"
fi
if [ "${1:-}" = --install ]; then
    echo "$PYTHON"
    exit
fi
if [ -z "${FAIRLOCK_BIN:-}" ] || [ ! -x "$FAIRLOCK_BIN" ]; then
    (cd "$ROOT" && cargo build --quiet --package fairlock-server)
    FAIRLOCK_BIN="$CARGO_TARGET_DIR/debug/fairlock"
fi
export FAIRLOCK_BIN
export FAIRLOCK_TEST_CERTIFICATES="$CARGO_TARGET_DIR/debug/examples/test_certificates"
(cd "$ROOT" && cargo build --quiet --workspace --exclude fairlock-python --example test_certificates)

exec "$PYTHON" -X dev -W error -m pytest "$@"
