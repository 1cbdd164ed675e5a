#!/bin/sh
# Closes orders in a PostgreSQL, a MariaDB and an SQLite of its own, told by a Redis of its own, with TLS and without, and prints what it
# saw: servers.sh PROGRAM [ROOT [USER:GROUP]]. PROGRAM is run in the chroot ROOT, if there is one, by that user; the servers are this
# machine's. Needs root.
set -eu
program=$1 root=${2:-} runs_as=${3:-}
work=$(mktemp -d /tmp/order-closer.XXXXXX)
inside=$(mktemp -d "$root/tmp/order-closer.XXXXXX")
shop=${inside#"$root"}
chmod 755 "$work" "$inside"
running='' as_itself=''

end() {
    for pid in $running; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in $running; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work" "$inside"
}
trap end EXIT
trap 'exit 1' INT TERM

fail() { echo "FAILED: $1" >&2; [ ! -s "$work/said" ] || tail -n 20 "$work/said" >&2; exit 1; }
until_true() { # WHAT COMMAND...
    what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what"
        sleep 0.2
    done
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
server() { # NAME COMMAND...: in the background, its log in a file
    log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 &
    running="$running $!"
}

# An authority that nobody knows, and a certificate of it.
cd "$work"
{
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=an authority' -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj '/CN=localhost' -keyout server.key -out server.csr
    echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' >names
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem
} >said 2>&1 || fail 'a certificate'
cp ca.pem "$inside/ca.pem"

# PostgreSQL. It lets plain in without TLS alone, by_tls with TLS alone.
owner=nobody
! id postgres >/dev/null 2>&1 || owner=postgres
as_owner="setpriv --reuid=$owner --regid=$(id -g "$owner") --clear-groups"
programs=$(find /usr/lib/postgresql -name initdb -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
[ -z "$programs" ] || PATH=$PATH:$programs
mkdir postgres
install -m 600 -o "$owner" server.key postgres/server.key
chown -R "$owner" postgres
$as_owner initdb -D postgres/data -U postgres -A trust -E UTF8 --locale=C --no-sync >initdb.log 2>&1 || fail "initdb: $(tail -n 3 initdb.log)"
cat >postgres/data/pg_hba.conf <<END
local     all all trust
hostssl   all by_tls 127.0.0.1/32 scram-sha-256
hostnossl all plain  127.0.0.1/32 scram-sha-256
END
postgres_port=$(free_port)
# shellcheck disable=SC2086
server postgres $as_owner postgres -D postgres/data -p "$postgres_port" -h 127.0.0.1 -k "$work/postgres" \
    -c ssl=on -c "ssl_cert_file=$work/server.pem" -c "ssl_key_file=$work/postgres/server.key"
postgres() { psql -q -At -v ON_ERROR_STOP=1 -h "$work/postgres" -p "$postgres_port" -U postgres "$@"; }
until_true 'PostgreSQL does not start' postgres -c 'SELECT 1' postgres
for user in plain by_tls; do
    postgres -c "CREATE ROLE $user LOGIN PASSWORD 'secret'" postgres
    postgres -c "CREATE DATABASE $user OWNER $user" postgres
    postgres "$user" -c "SET ROLE $user; CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer NOT NULL, expires_at timestamptz NOT NULL);
        CREATE INDEX order_closer_due ON orders (expires_at, order_no) WHERE status = 0"
done

# MariaDB, the same.
mariadb-install-db --no-defaults --user=root --datadir="$work/mariadb" --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1 ||
    fail "mariadb-install-db: $(tail -n 3 install.log)"
mariadb_port=$(free_port)
server mariadbd mariadbd --no-defaults --user=root --datadir="$work/mariadb" --socket="$work/mariadb.sock" --port="$mariadb_port" \
    --bind-address=127.0.0.1 --ssl-ca="$work/ca.pem" --ssl-cert="$work/server.pem" --ssl-key="$work/server.key"
mariadb_of() { mariadb --no-defaults --socket="$work/mariadb.sock" --user=root -N -B "$@"; }
until_true 'MariaDB does not start' mariadb_of -e 'SELECT 1'
for user in plain by_tls; do
    demand=NONE
    [ "$user" = plain ] || demand=SSL
    mariadb_of -e "CREATE DATABASE $user; CREATE USER $user@'127.0.0.1' IDENTIFIED BY 'secret' REQUIRE $demand; GRANT ALL ON $user.* TO $user@'127.0.0.1';
        CREATE TABLE $user.orders (order_no BIGINT PRIMARY KEY, status INT NOT NULL, expires_at TIMESTAMP(3) NOT NULL,
            INDEX order_closer_due (status, expires_at, order_no))"
done

redis_port=$(free_port) redis_tls_port=$(free_port)
server redis redis-server --port "$redis_port" --tls-port "$redis_tls_port" --bind 127.0.0.1 --save '' --dir "$work" --tls-cert-file "$work/server.pem" \
    --tls-key-file "$work/server.key" --tls-ca-cert-file "$work/ca.pem" --tls-auth-clients no
redis() { redis-cli -p "$redis_port" "$@"; }
until_true 'Redis does not start' redis ping

sqlite3 "$inside/plain.db" 'CREATE TABLE orders (order_no INTEGER PRIMARY KEY, status INTEGER NOT NULL, expires_at TEXT NOT NULL);
    CREATE INDEX order_closer_due ON orders (status, expires_at, order_no)'
[ -z "$runs_as" ] || chown -R "$runs_as" "$inside"

# DATABASE USER SQL
ask() {
    case "$1" in
    postgres) postgres "$2" -c "$3" ;;
    mariadb) mariadb_of "$2" -e "$3" ;;
    sqlite) sqlite3 -cmd '.timeout 10000' "$inside/$2.db" "$3" ;;
    esac
}
now() { # DATABASE SECONDS
    case "$1" in
    postgres) echo "now() + interval '$2 seconds'" ;;
    mariadb) echo "NOW(3) + INTERVAL $2 SECOND" ;;
    sqlite) echo "strftime('%Y-%m-%d %H:%M:%f', 'now', '$2 seconds')" ;;
    esac
}

# Orders wait an hour for a sweep: what closes in time was told by Redis.
order_closer() { # VARIABLE=VALUE... -- ARGUMENT...
    set -- ORDER_CLOSER_ORDERS__TABLE=orders ORDER_CLOSER_SWEEP__EVERY=1h ORDER_CLOSER_SWEEP__AHEAD=0s "$@"
    variables=
    while [ "$1" != -- ]; do variables="$variables $1" && shift; done
    shift
    # shellcheck disable=SC2086
    $as_itself env -i PATH=/usr/sbin:/usr/bin:/bin $variables ${root:+chroot ${runs_as:+--userspec="$runs_as"} "$root"} "$program" "$@"
}
refuses() { # WHAT WORDS VARIABLE=VALUE... -- ARGUMENT...
    what=$1 words=$2
    shift 2
    ! order_closer "$@" >"$work/said" 2>&1 || fail "$what: not refused"
    grep -qi "$words" "$work/said" || fail "$what: refused for another reason"
    ! grep -q secret "$work/said" || fail "$what: the password is shown"
    echo "  $what: refused"
}
closes() { # DATABASE USER URL REDIS-URL
    order_closer_here() { order_closer "ORDER_CLOSER_DATABASE__URL=$url" "ORDER_CLOSER_REDIS__URL=$redis_url" \
        "ORDER_CLOSER_REDIS__CA_FILE=$shop/ca.pem" -- "$@"; }
    database=$1 user=$2 url=$3 redis_url=$4
    ask "$database" "$user" "INSERT INTO orders VALUES (1, 0, $(now "$database" -60)), (2, 1, $(now "$database" -60)), (3, 0, $(now "$database" 3600))"
    for command in migrate check reconcile; do
        order_closer_here "$command" >"$work/said" 2>&1 || fail "$command on $url, $redis_url"
    done
    [ "$(ask "$database" "$user" 'SELECT status FROM orders ORDER BY order_no' | tr '\n' ' ')" = '4 1 0 ' ] || fail "reconcile on $url"

    as_itself=exec order_closer_here run >"$work/said" 2>&1 & # so that the signal reaches the daemon, and not a shell before it
    daemon=$!
    running="$running $daemon"
    until_true "run listens to $redis_url" sh -c "[ \"\$(redis-cli -p $redis_port pubsub numpat)\" = 1 ]"
    ask "$database" "$user" "INSERT INTO orders VALUES (4, 0, $(now "$database" 1))"
    redis set order_4 '' PX 1000 >/dev/null
    closed() { [ "$(ask "$database" "$user" 'SELECT status FROM orders WHERE order_no = 4')" = 4 ]; }
    until_true "run closes on $url, told by $redis_url" closed
    kill -TERM "$daemon"
    wait "$daemon" || fail "run ends with $?"
    until_true 'the daemon is gone' sh -c "[ \"\$(redis-cli -p $redis_port pubsub numpat)\" = 0 ]"
    echo "  $database${5:+, $5}, $(echo "$redis_url" | sed 's|://.*||')://: migrate, check, reconcile, run"
}

order_closer -- --version
plain=redis://127.0.0.1:$redis_port tls=rediss://127.0.0.1:$redis_tls_port
postgres_at=127.0.0.1:$postgres_port mariadb_at=127.0.0.1:$mariadb_port
closes sqlite plain "sqlite://$shop/plain.db" "$plain"
closes postgres plain "postgres://plain:secret@$postgres_at/plain?sslmode=disable" "$plain"
closes postgres by_tls "postgres://by_tls:secret@$postgres_at/by_tls?sslmode=require" "$tls" sslmode=require
closes mariadb plain "mysql://plain:secret@$mariadb_at/plain?ssl-mode=DISABLED" "$plain"
closes mariadb by_tls "mysql://by_tls:secret@$mariadb_at/by_tls?ssl-mode=VERIFY_IDENTITY&ssl-ca=$shop/ca.pem" "$tls" ssl-mode=VERIFY_IDENTITY
order_closer "ORDER_CLOSER_DATABASE__URL=postgres://by_tls:secret@$postgres_at/by_tls?sslmode=verify-full&sslrootcert=$shop/ca.pem" \
    ORDER_CLOSER_REDIS__URL="$plain" -- check >"$work/said" 2>&1 || fail 'check with verify-full'
echo '  postgres, sslmode=verify-full: check'

unknown='certificate\|unknownissuer'
refuses 'postgres by an authority that is not known' "$unknown" \
    "ORDER_CLOSER_DATABASE__URL=postgres://by_tls:secret@$postgres_at/by_tls?sslmode=verify-full" ORDER_CLOSER_REDIS__URL="$plain" -- check
refuses 'mariadb by an authority that is not known' "$unknown" \
    "ORDER_CLOSER_DATABASE__URL=mysql://by_tls:secret@$mariadb_at/by_tls?ssl-mode=VERIFY_CA" ORDER_CLOSER_REDIS__URL="$plain" -- check
refuses 'redis by an authority that is not known' "$unknown" \
    "ORDER_CLOSER_DATABASE__URL=sqlite://$shop/plain.db" ORDER_CLOSER_REDIS__URL="$tls" -- check
