#!/bin/sh
# Installs the server and its commands: the binary, its manual pages, completions for bash, zsh and fish, the
# systemd unit with its user, and the sample settings.
#
#   packaging/install.sh                            builds a release and installs to /usr/local
#   packaging/install.sh /usr                       installs somewhere else (an absolute path; --prefix=/usr is the same)
#   packaging/install.sh $HOME/.local               for yourself alone: without the unit, its user and /etc/fairlock
#   DESTDIR=/tmp/package packaging/install.sh /usr  for packagers
#   BINARY=target/debug/fairlock packaging/install.sh  takes what is built already
#
# /etc/fairlock/fairlock.toml is made of the sample where there is none; one that is there stays as it is.
# The C library has a script of its own: bindings/c/install.sh.
set -eu

help() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
}

prefix=${1-${PREFIX:-/usr/local}}
prefix=${prefix#--prefix=}
case $#$prefix in
1-h | 1--help)
    help
    exit 0
    ;;
[01]/*) ;;
*)
    help >&2
    exit 64
    ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/.." && pwd)
destdir=${DESTDIR:-}
binary=${BINARY:-}

if [ -z "$binary" ]; then
    (cd "$project" && cargo build --release --locked --package fairlock-server)
    binary=${CARGO_TARGET_DIR:-$project/target}/release/fairlock
fi

# What belongs to the system is for those who may change it. A package is for them in any case.
system=yes
case $prefix/ in
"${HOME:-/nowhere}"/*) system= ;;
esac
[ "$(id -u)" = 0 ] || system=
[ -z "$destdir" ] || system=yes

# What is installed says what it is by itself.
target=$destdir$prefix
install -d "$target/bin" "$target/share/man/man1"
install -m 755 "$binary" "$target/bin/fairlock"
"$target/bin/fairlock" man --dir "$target/share/man/man1"
chmod 644 "$target"/share/man/man1/fairlock*.1

completions() { # shell, folder under share, file
    install -d "$target/share/$2"
    "$target/bin/fairlock" completions "$1" >"$target/share/$2/$3"
    chmod 644 "$target/share/$2/$3"
}
completions bash bash-completion/completions fairlock
completions zsh zsh/site-functions _fairlock
completions fish fish/vendor_completions.d fairlock.fish

install -d "$target/share/doc/fairlock"
for file in README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT fairlock.sample.toml docs/operations.md \
    packaging/systemd/secret.conf; do
    install -m 644 "$project/$file" "$target/share/doc/fairlock/"
done

"$target/bin/fairlock" --version
if [ -z "$system" ]; then
    echo "installed to $target, without the systemd unit, its user and /etc/fairlock, which are for root and a prefix outside of a home"
    echo "all settings are explained in $target/share/doc/fairlock/fairlock.sample.toml"
    exit 0
fi

install -d "$target/lib/systemd/system" "$target/lib/sysusers.d"
sed "s|/usr/local/bin/fairlock|$prefix/bin/fairlock|" "$here/systemd/fairlock.service" \
    >"$target/lib/systemd/system/fairlock.service"
chmod 644 "$target/lib/systemd/system/fairlock.service"
install -m 644 "$here/systemd/sysusers.conf" "$target/lib/sysusers.d/fairlock.conf"
settings=$destdir/etc/fairlock/fairlock.toml
[ -e "$settings" ] || install -D -m 644 "$project/fairlock.sample.toml" "$settings"

echo "installed to $target; the settings are in $settings"
case $prefix in
/usr | /usr/local) ;;
*) # Where systemd does not look by itself.
    echo "for systemd: systemd-sysusers $prefix/lib/sysusers.d/fairlock.conf && systemctl link $prefix/lib/systemd/system/fairlock.service"
    ;;
esac
