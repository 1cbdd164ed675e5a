#!/bin/sh
# Installs, uses, upgrades, removes and purges a Debian package in a chroot of each of these releases: test.sh DEB [SUITE...].
# Needs root and mmdebstrap; the chroots come from the mirror that apt uses here, and are kept in target/package/chroot.
set -eu
deb=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- bookworm bullseye
source=$(cd "$(dirname "$0")/.." && pwd)
work=$source/target/package/chroot
mkdir -p "$work"
root=$(mktemp -d "$work/root.XXXXXX")
trap 'rm -rf "$root"' EXIT

say() { printf '%s: %s\n' "$suite" "$1"; }
fail() { say "FAILED: $1" >&2; exit 1; }
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
# What a package may leave behind: nothing but what dpkg notes of itself.
files() { (cd "$root" && find . -xdev ! -path './var/lib/dpkg*' ! -path './var/log*' ! -path './var/cache/ldconfig*' ! -path './etc/*-' ! -path './run/*' | LC_ALL=C sort); }

for suite; do
    mirror=$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*debian* 2>/dev/null | head -n 1)
    if [ ! -s "$work/$suite.tar" ]; then
        mmdebstrap --quiet --variant=minbase --include=adduser,ca-certificates "$suite" "$work/$suite.tar" "${mirror:-http://deb.debian.org/debian}"
    fi
    rm -rf "$root" && mkdir "$root" && chmod 755 "$root" && tar -C "$root" --exclude='./dev/*' -xf "$work/$suite.tar"
    : >"$root/dev/null"
    chmod 666 "$root/dev/null"
    before=$(files)
    users=$(cat "$root/etc/passwd")
    cp "$deb" "$root/first.deb"
    in_root dpkg -i /first.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "it can't be installed"; }
    say "installed: $(in_root order-closer --version), glibc $(in_root ldd --version | sed -n '1s/.* //p')"
    [ "$(in_root stat -c '%U:%G %a' /etc/order-closer/order-closer.toml)" = 'root:order-closer 640' ] || fail "the configuration's owner"
    [ "$(in_root stat -c '%U:%G %a' /etc/order-closer/secrets.env)" = 'root:root 600' ] || fail "the secrets' owner"
    for file in usr/share/man/man1/order-closer.1.gz usr/share/bash-completion/completions/order-closer usr/lib/systemd/system/order-closer.service; do
        [ -e "$root/$file" ] || fail "$file is missing"
    done
    grep -q '^ExecStart=/usr/bin/order-closer ' "$root/usr/lib/systemd/system/order-closer.service" || fail "the unit starts another program"

    # A shop in SQLite, whose URL is known to the secrets alone; its folder is the daemon's.
    sqlite3 "$root/var/lib/order-closer/shop.db" 'CREATE TABLE orders (order_no INTEGER PRIMARY KEY, status INTEGER NOT NULL, expires_at TEXT NOT NULL);
        CREATE INDEX order_closer_due ON orders (status, expires_at, order_no);
        INSERT INTO orders VALUES (1, 0, datetime()), (2, 1, datetime())'
    in_root chown order-closer:order-closer /var/lib/order-closer/shop.db
    echo "ORDER_CLOSER_DATABASE__URL='sqlite://shop.db'" >"$root/etc/order-closer/secrets.env"
    echo 'ORDER_CLOSER_EVENTS__ENABLED=true' >>"$root/etc/order-closer/secrets.env"
    in_root order-closer-ctl migrate >/dev/null || fail "order-closer-ctl migrate"
    in_root order-closer-ctl reconcile >/dev/null || fail "order-closer-ctl reconcile"
    [ "$(in_root order-closer-ctl events | grep -c .)" = 1 ] || fail "order-closer-ctl events"
    found=$(sqlite3 "$root/var/lib/order-closer/shop.db" 'SELECT order_no, status FROM orders' | tr '\n' ' ')
    [ "$found" = '1|4 2|1 ' ] || fail "the orders: $found"
    say "order-closer-ctl closed what is due"

    echo '# mine' >>"$root/etc/order-closer/order-closer.toml"
    next=$(COMPRESSION=none "$source/packaging/deb.sh" "$root/usr/bin/order-closer" "$root/next" 99.0)
    in_root dpkg -i "/next/${next##*/}" >"$root/log" 2>&1 || { cat "$root/log"; fail "it can't be upgraded"; }
    grep -q '^# mine$' "$root/etc/order-closer/order-closer.toml" || fail "the upgrade took the configuration back"
    grep -q shop.db "$root/etc/order-closer/secrets.env" || fail "the upgrade took the secrets"
    say "upgraded, settings kept"

    in_root dpkg -r order-closer >"$root/log" 2>&1 || fail "it can't be removed"
    [ ! -e "$root/usr/bin/order-closer" ] && [ -e "$root/etc/order-closer/order-closer.toml" ] || fail "what is left after the removal"
    in_root dpkg -P order-closer >"$root/log" 2>&1 || fail "it can't be purged"
    [ -e "$root/var/lib/order-closer/shop.db" ] && [ ! -e "$root/etc/order-closer" ] || fail "what is left after the purge"
    rm "$root/var/lib/order-closer/"*

    in_root dpkg -i /first.deb >"$root/log" 2>&1 || fail "it can't be installed again"
    in_root dpkg -P order-closer >"$root/log" 2>&1 || fail "it can't be purged again"
    rm -rf "$root/first.deb" "$root/next" "$root/log"
    left=$(files)
    [ "$left" = "$before" ] || { echo "$before" >"$work/before"; echo "$left" | diff "$work/before" - || true; fail "the purge leaves files behind"; }
    [ "$(cat "$root/etc/passwd")" = "$users" ] || fail "the purge leaves the user behind"
    say "removed and purged, nothing left"
done
