#!/bin/sh
# Builds what is handed out, in target/package/out: a binary for every Linux with glibc 2.17 or later, as a .tar.gz and as a
# Debian package, and their SHA-256 sums. No path and no time of this machine is to be in them.
set -eu
cd "$(dirname "$0")/.."
GLIBC=2.17
ZIGBUILD='cargo-zigbuild==0.20.1 ziglang==0.14.1'
target=$(pwd)/${CARGO_TARGET_DIR:-target}
case "${CARGO_TARGET_DIR-}" in /*) target=$CARGO_TARGET_DIR ;; esac
out=$target/package/out
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# Zig's C compiler links against the symbols of an old glibc, which the system's own can't.
tools=$target/package/venv
if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet $ZIGBUILD
fi
PATH=$tools/bin:$PATH

# No path of this machine stands in the binary.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$(pwd)=/order-closer"
CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$(pwd)=/order-closer"
export RUSTFLAGS CFLAGS
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo zigbuild --release --locked --all-features --bin order-closer --target "$triple.$GLIBC"
binary=$target/$triple/release/order-closer
needs=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
[ "$needs" = "GLIBC_$GLIBC" ] || { echo "$binary needs $needs, and GLIBC_$GLIBC was asked for" >&2; exit 1; }
! grep -aqF -e "$(pwd)" -e "$cargo_home" "$binary" || { echo "$binary has a path of this machine in it" >&2; exit 1; }

mkdir -p "$out"
rm -f "$out"/*
version=$("$binary" --version | cut -d' ' -f2)
name=order-closer-$version-${triple%%-*}-linux
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 022
mkdir -p "$folder/$name/man" "$folder/$name/completions"
cp "$binary" redis.conf README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT "$folder/$name/"
cp -r config docs examples "$folder/$name/"
"$binary" generate man "$folder/$name/man"
cp packaging/order-closer-ctl.8 "$folder/$name/man/"
for shell in bash zsh fish; do
    "$binary" generate completions "$shell" >"$folder/$name/completions/order-closer.$shell"
done
"$binary" config --schema >"$folder/$name/order-closer.schema.json"
chmod -R u=rwX,go=rX "$folder/$name"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$folder" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"

if command -v dpkg-deb >/dev/null; then
    packaging/deb.sh "$binary" "$out" >/dev/null
else
    echo "dpkg-deb is not installed; the Debian package is left out"
fi
(cd "$out" && sha256sum -- *.* >SHA256SUMS && cat SHA256SUMS)
