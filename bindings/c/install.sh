#!/bin/sh
# Installs fairlock.h, libfairlock.so, libfairlock.a and fairlock.pc.
#
#   bindings/c/install.sh                                    builds a release and installs to /usr/local
#   PREFIX=/usr DESTDIR=/tmp/package bindings/c/install.sh   for packagers
#   PROFILE=debug BUILD=no bindings/c/install.sh             takes what is built already
#
# LIBDIR and INCLUDEDIR stand for $PREFIX/lib and $PREFIX/include.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
destdir=${DESTDIR:-}
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-$here/../../target}

if [ "${BUILD:-yes}" = yes ]; then
    case $profile in
    debug) flags= ;;
    *) flags=--profile=$profile ;;
    esac
    # shellcheck disable=SC2086
    cargo build --manifest-path "$here/Cargo.toml" $flags
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
major=${version%%.*}

install -d "$destdir$libdir/pkgconfig" "$destdir$includedir"
install -m 644 "$here/include/fairlock.h" "$destdir$includedir/fairlock.h"
install -m 644 "$target/$profile/libfairlock_c.a" "$destdir$libdir/libfairlock.a"
install -m 755 "$target/$profile/libfairlock_c.so" "$destdir$libdir/libfairlock.so.$version"
ln -sf "libfairlock.so.$version" "$destdir$libdir/libfairlock.so.$major"
ln -sf "libfairlock.so.$major" "$destdir$libdir/libfairlock.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@INCLUDEDIR@|$includedir|" \
    -e "s|@VERSION@|$version|" "$here/fairlock.pc.in" >"$destdir$libdir/pkgconfig/fairlock.pc"
chmod 644 "$destdir$libdir/pkgconfig/fairlock.pc"
echo "fairlock $version is in $destdir$prefix"
