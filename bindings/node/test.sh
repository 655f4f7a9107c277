#!/usr/bin/env bash
# Builds the addon and runs the tests of the npm package; fast when nothing changed. Arguments go to `node --test`.
# The compiler that checks the types is fetched once into a cache folder.
# FAIRLOCK_NODE_PROFILE   dev or release   (default: dev, which checks all invariants; release also looks at the size)
set -euo pipefail
cd "$(dirname "$0")"

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/fairlock/target}" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
export FAIRLOCK_NODE_PROFILE="${FAIRLOCK_NODE_PROFILE:-dev}"
built="$CARGO_TARGET_DIR/${FAIRLOCK_NODE_PROFILE/#dev/debug}"
# For development the whole workspace, so that every part is built with the same features and dependencies are built once.
what=(--workspace --exclude fairlock-python)
[ "$FAIRLOCK_NODE_PROFILE" = dev ] || what=(--package fairlock-node --package fairlock-server)
cargo build --quiet --profile "$FAIRLOCK_NODE_PROFILE" --manifest-path ../../Cargo.toml "${what[@]}"
node scripts/build.js --from "$built/libfairlock_node.so"
export FAIRLOCK_BIN="${FAIRLOCK_BIN:-$built/fairlock}"
cargo build --quiet --manifest-path ../../Cargo.toml --workspace --exclude fairlock-python --example test_certificates
export FAIRLOCK_TEST_CERTIFICATES="$CARGO_TARGET_DIR/debug/examples/test_certificates"

export FAIRLOCK_NPM_TOOLS="${FAIRLOCK_NPM_TOOLS:-$HOME/.cache/fairlock/npm}"
if [ ! -x "$FAIRLOCK_NPM_TOOLS/node_modules/.bin/tsc" ] || [ ! -d "$FAIRLOCK_NPM_TOOLS/node_modules/@types/node" ]; then
    mkdir -p "$FAIRLOCK_NPM_TOOLS"
    npm install --silent --no-audit --no-fund --no-package-lock --prefix "$FAIRLOCK_NPM_TOOLS" typescript@7 @types/node@20
fi

# A server and secrets that happen to be configured are none of the tests' business.
unset FAIRLOCK_SERVERS FAIRLOCK_SECRET FAIRLOCK_SECRET_FILE FAIRLOCK_NODE_ADDON
if [ $# -eq 0 ]; then set -- test/*.test.mjs; fi
exec node --unhandled-rejections=strict --test "$@"
