#!/usr/bin/env bash
# Runs tests on other versions of the servers than the installed ones:
#
#     tests/compat/run.sh [SERVER...]        all of them without an argument
#
# In: COMPAT_DIR (target/compat), which tests/compat/provision.sh has filled. Out: one line for each server and one for
# each test that failed; what the tests said in COMPAT_DIR/results/SERVER.log; exit status 1 if anything failed.
set -uo pipefail

dir="$(cd "${COMPAT_DIR:-target/compat}" && pwd)" || exit 1
cargo="${CARGO:-cargo}"
all="redis-6.2 redis-8 valkey-8 valkey-9 postgres-12 postgres-17 postgres-18 mariadb-11.8 mysql-9.7"

# What a Redis is asked: notifications, keys, streams, peers, rights, clusters, sentinels, and what `check` finds; with SQLite
# beside it.
redis='^(support::redis|promises::(redis|redis_access|redis_changes|redis_trouble|cluster|sentinels|events|streams|peers)::|promises::clocks::.*sqlite|commands::(arm|check::(redis|cluster|sentinels))::)'
# What a database is asked: the whole exam, and the promises in which it is away, far, locked, wrong, or raced for.
promises='databases|dead_letters|faults|held|locks|network|poison|races|tables|timers|together'
postgres="^(conformance::postgres::|promises::($promises)::.*in_postgres\$)"
mariadb="^(conformance::mariadb::|promises::($promises)::.*in_mariadb\$)"

# What is not asked of a server, because it has nothing like it, or its package lacks a program for it.
none='^$'
declare -A lacks=(
	[postgres-12]='a_postgres_that_is_promoted'
	[postgres-17]='a_postgres_that_is_promoted'
	[postgres-18]='a_postgres_that_is_promoted'
	# This build of it has no TLS, and 6.2 no flag for new keys; and these tests set up clusters and sentinels as from 7.0 on.
	[redis-6.2]='cluster|sentinels|_tls_|authority|other_ways_to_redis|the_printed_command_reaches_the_server|flags_of_others_stay'
	# No type uuid, no Aria, no count of the rows that were read; and these tests' own SQL needs a table of numbers, EXPLAIN
	# PARTITIONS, or the right READ ONLY ADMIN.
	[mysql-9.7]='uuid_ids|an_engine_without_transactions|reads_only_what_is_due|a_long_list_uses_the_index|a_look_up_reads_few_partitions|a_mariadb_that_became_read_only|claiming_finds_deliveries_by_their_events|closing_finds_orders_by_id|dead_letters_of_settled_orders_are_forgotten|old_events_are_pruned'
)

failed=0
mkdir -p "$dir/results"
"$cargo" test --quiet --all-features --test main --no-run || exit 1
names="$("$cargo" test --quiet --all-features --test main -- --list --format terse | sed -n 's/: test$//p')"

for server in ${@:-$all}; do
	[ -s "$dir/$server/version" ] || { echo "$server is not there: tests/compat/provision.sh $server" >&2 && exit 1; }
	case "$server" in
	redis-* | valkey-*) variable=COMPAT_REDIS asked="$redis" ;;
	postgres-*) variable=COMPAT_POSTGRES asked="$postgres" ;;
	*) variable=COMPAT_MARIADB asked="$mariadb" ;;
	esac
	log="$dir/results/$server.log"
	# The names have no spaces.
	tests="$(echo "$names" | grep -E "$asked" | grep -vE "${lacks[$server]:-$none}")"
	env "$variable=$dir/$server/bin" "$cargo" test --quiet --all-features --test main -- --exact $tests >"$log" 2>&1 || failed=1
	echo "$server ($(cat "$dir/$server/version")): $(sed -n 's/^test result: [A-Za-z]*\. \(.*failed\);.*/\1/p' "$log" | grep . || echo "no result, see $log")"
	sed -n '/^failures:$/,/^test result/s/^    \([a-z_:0-9]*\)$/    failed: \1/p' "$log" | sort -u
done
exit "$failed"
