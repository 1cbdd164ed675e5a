#!/bin/sh
# Makes a Debian package of a binary that is there: deb.sh BINARY FOLDER [VERSION]. The same input and SOURCE_DATE_EPOCH make the
# same bytes. COMPRESSION=none saves half a minute, for tests.
set -eu
binary=$1 out=$2
source=$(cd "$(dirname "$0")/.." && pwd)
version=${3:-$("$binary" --version | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || date +%s)}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
"$source/packaging/stage.sh" "$binary" "$root"
gzip -9n >"$root/usr/share/doc/order-closer/changelog.gz" <<END
order-closer ($version) unstable; urgency=medium

  * What has changed stands in CHANGELOG.md, beside this file.

 -- The order-closer authors <order-closer@users.noreply.invalid>  $(LC_ALL=C date -u -R -d "@$epoch")
END

mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "$source/packaging/debian/$script" "$root/DEBIAN/$script"
done
echo /etc/order-closer/order-closer.toml >"$root/DEBIAN/conffiles"
size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    "$source/packaging/debian/control" >"$root/DEBIAN/control"
(cd "$root" && find etc usr -type f ! -path 'etc/*' -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/conffiles" "$root/DEBIAN/control" "$root/DEBIAN/md5sums"
chmod 755 "$root"
find "$root" -exec touch -h -d "@$epoch" {} +

mkdir -p "$out"
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$root" "$out/order-closer_${version}_$architecture.deb" >/dev/null
echo "$out/order-closer_${version}_$architecture.deb"
