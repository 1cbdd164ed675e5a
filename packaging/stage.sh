#!/bin/sh
# Lays out all that is installed, below a folder: stage.sh BINARY FOLDER. BINARY has to run here, since it writes its own man pages.
set -eu
binary=$1 root=$2
source=$(cd "$(dirname "$0")/.." && pwd)
cd "$source"

put() { # MODE FILE PLACE
    install -D -m "$1" "$2" "$root/$3"
}

put 755 "$binary" usr/bin/order-closer
# Made by hand, the program stands in /usr/local; a package puts it into /usr.
for file in config/order-closer-ctl config/systemd/*; do
    case "$file" in
    *ctl) mode=755 place=usr/sbin/order-closer-ctl ;;
    *) mode=644 place=usr/lib/systemd/system/${file##*/} ;;
    esac
    put "$mode" "$file" "$place"
    sed -i 's|/usr/local/bin/order-closer|/usr/bin/order-closer|' "$root/$place"
done
put 640 config/order-closer.toml etc/order-closer/order-closer.toml

man=$root/usr/share/man
mkdir -p "$man/man1" "$man/man8"
"$binary" generate man "$man/man1"
put 644 packaging/order-closer-ctl.8 usr/share/man/man8/order-closer-ctl.8
gzip -9nf "$man"/man*/*

for shell in bash:bash-completion/completions/order-closer zsh:zsh/vendor-completions/_order-closer \
    fish:fish/vendor_completions.d/order-closer.fish; do
    mkdir -p "$root/usr/share/$(dirname "${shell#*:}")"
    "$binary" generate completions "${shell%%:*}" >"$root/usr/share/${shell#*:}"
done
mkdir -p "$root/usr/share/order-closer"
"$binary" config --schema >"$root/usr/share/order-closer/order-closer.schema.json"

doc=usr/share/doc/order-closer
for file in README.md CHANGELOG.md redis.conf config/crontab config/examples/* config/prometheus/*.rules.yml config/grafana/* \
    config/compose/* config/kubernetes/* docs/*.md docs/images/* docs/benchmarks/*; do
    case "$file" in
    config/examples/*) put 644 "$file" "$doc/examples/shops/${file##*/}" ;;
    config/*) put 644 "$file" "$doc/examples/${file#config/}" ;;
    redis.conf) put 644 "$file" "$doc/examples/$file" ;;
    *) put 644 "$file" "$doc/$file" ;;
    esac
done
put 644 packaging/debian/copyright "$doc/copyright"
find "$root" -type d -exec chmod 755 {} +
