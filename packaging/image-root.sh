#!/bin/sh
# Lays out all that the image has: the binary, the libraries it is linked with, the CAs that the system trusts,
# a user that is not root, a folder for its data, and the licences.
#
#   packaging/image-root.sh BINARY DIR
#
# The Dockerfile calls it; the tests do too, and run what it made.
set -eu

binary=$1
root=$2
user=10001

install -D -m 755 "$binary" "$root/usr/bin/fairlock"
# Under the names by which the binary's loader looks for them, whatever they are links to.
ldd "$binary" | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
    install -D -m 755 "$library" "$root$library"
done
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

echo "fairlock:x:$user:$user:fairlock:/data:/sbin/nologin" >"$root/etc/passwd"
echo "fairlock:x:$user:" >"$root/etc/group"
# Without this file names of the machine itself would be asked of the network first.
echo "hosts: files dns" >"$root/etc/nsswitch.conf"

licences=$(cd "$(dirname "$0")/.." && pwd)
install -D -m 644 -t "$root/usr/share/doc/fairlock" "$licences/LICENSE-APACHE" "$licences/LICENSE-MIT"

install -d -m 700 -o "$user" -g "$user" "$root/data"
