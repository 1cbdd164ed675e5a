#!/bin/sh
# What the Dockerfile makes, without a container engine: builds the program by its commands, puts it into a root directory that has what
# the base image has, and lets it close orders there, as the image's user and with nothing that it could write but /tmp. Needs root.
set -eu
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/image
mkdir -p "$out"
root=$(mktemp -d "$(realpath "$out")/root.XXXXXX")
chmod 755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM

# As the Dockerfile says, in a place of its own: what is compiled so is of no use to other builds.
RUSTFLAGS=$(sed -n 's/^ENV RUSTFLAGS="\(.*\)"$/\1/p' Dockerfile)
export RUSTFLAGS CARGO_TARGET_DIR="$out"
triple=$(rustc -vV | sed -n 's/^host: //p')
eval "$(sed -n 's/^RUN \(cargo build .*\) \\$/\1/p' Dockerfile)"
binary=$out/$triple/release/order-closer
! readelf --program-headers --wide "$binary" | grep -q INTERP || { echo "$binary is not static" >&2; exit 1; }

# The base: authorities, time zones, users, and neither a library nor a shell.
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/usr/share" "$root/tmp" "$root/home/nonroot" "$root/proc" "$root/dev"
cp "$binary" "$root/usr/bin/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
[ ! -d /usr/share/zoneinfo ] || cp -r /usr/share/zoneinfo "$root/usr/share/"
printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
cp /etc/hosts "$root/etc/"
user=$(sed -n 's/^USER //p' Dockerfile)
echo "$(du -h "$binary" | cut -f1), static; by $user, in a root that is only read:"
# /proc and these devices are in every container.
# shellcheck disable=SC2016
unshare --mount sh -euc '
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    for device in null zero full random urandom; do : >"$1/dev/$device" && mount --bind "/dev/$device" "$1/dev/$device"; done
    mount -t tmpfs -o mode=755 tmpfs "$1/tmp"
    mount -o remount,bind,ro "$1"
    packaging/servers.sh /usr/bin/order-closer "$1" "$2"
' sh "$root" "$user"
