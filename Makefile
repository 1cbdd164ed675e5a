# make demo: see it work.   make test: what must hold.   make test-all: everything.   make bench: how fast it is.

CARGO ?= cargo
comma := ,
TARGET := $(or $(CARGO_TARGET_DIR),target)
export PATH := $(PATH):/usr/sbin:/sbin:$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-all model chaos compat upgrade-test bench build package package-test image-test lint deny docs snippets

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST))

demo: ## a shop in miniature, closed by the real daemon, in less than a minute
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,redis-server=redis-server,the demo starts a private Redis of its own)
	$(CARGO) build --release
	$(TARGET)/release/order-closer demo

# What needs more than these servers, or more than a minute, by a part of its name: `make test` leaves it to `make test-all`.
FOR_TEST_ALL := a_pooler_ a_restored_backup_ histories:: promtool_ chromium_ clients:: chaos::a_minute_ chaos::what_ \
	promises::redis_trouble promises::slow_database promises::isolated promises::flood promises::peers promises::network promises::redis_changes \
	promises::slow_redis promises::cluster promises::sentinels promises::webhooks promises::witnesses promises::together promises::instances promises::tables \
	promises::shadow promoted_after_the_ is_a_black_hole what_two_rules_claim_ one_migrates_at_a_time thousands_of_payments \
	deliveries_and_their_backlog_ receiver_of_the_documentation the_nodes_of_a_cluster a_crowd_for_a_receiver

# They wait most of the time: two of them at a time leave two cores idle.
THREE_AT_A_TIME = $(shell [ "$$(nproc)" -gt 2 ] || echo RUST_TEST_THREADS=3)

test: ## formatting, lints and tests, against real servers on free ports
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql openssl=openssl sqlite3=sqlite3,the tests start private servers of their own)
	$(call if_installed,fmt,rustfmt,--check)
	$(call if_installed,clippy,clippy,--all-targets $(FEATURES) -- -D warnings)
	$(call with_servers,$(if $(FOR_TEST_ALL),$(THREE_AT_A_TIME)) $(CARGO) test $(FEATURES) $(and $(FOR_TEST_ALL),-- $(addprefix --skip ,$(FOR_TEST_ALL))))

# What comes with a feature is in what is handed out.
test-all: FOR_TEST_ALL :=
test-all: FEATURES := --all-features
test-all: more denied test ## the same, and what takes a minute or another server

.PHONY: more denied
more:
	$(call require,pgbouncer=pgbouncer prometheus=prometheus chromium=chromium python3=python3 faketime=faketime rabbitmq-server=rabbitmq-server,tests start a pooler before PostgreSQL$(comma) a Prometheus and a browser beside the daemon$(comma) a receiver in Python and a broker$(comma) and skew a daemon's clock)
	$(call require,npm=npm pip3=python3-pip:python3-venv php=php-cli:php-redis:php-mysql /usr/share/php/Illuminate/Redis=php-redis:php-mysql:php-illuminate-database:php-illuminate-redis:php-illuminate-support javac=default-jdk-headless /usr/share/java/postgresql.jar=libpostgresql-jdbc-java /usr/share/java/spring3-jdbc.jar=libspring-jdbc-java:libspring-transaction-java:libspring-context-java:libmariadb-java go=golang-go /usr/share/gocode/src/github.com/jackc/pgx/v4=golang-github-jackc-pgx-v4-dev /usr/share/gocode/src/github.com/gomodule/redigo=golang-github-gomodule-redigo-dev,tests run the clients of examples/clients; npm and pip fetch what these need)

denied:
	@if $(CARGO) deny --version >/dev/null 2>&1; then echo "$(CARGO) deny check bans licenses sources"; $(CARGO) deny check bans licenses sources; \
	else echo "cargo deny is not installed; left out ('cargo install cargo-deny --locked' installs it)"; fi

# SEED=7: the same again.   SECONDS=3600 RATE=50: longer, and less at a time.   DATABASE=mariadb, REDIS=cluster: these alone.   FAULTS="daemon killed": these alone.
chaos: ## three daemons and a shop in which everything goes wrong, for ten minutes; docs/chaos.md
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql openssl=openssl faketime=faketime,it starts private servers of its own$(comma) and skews a daemon's clock)
	$(call with_servers,$(CARGO) test --release -- --ignored --exact --nocapture chaos::as_long_as_you_like)
chaos: export CHAOS_SEED := $(SEED)
chaos: export CHAOS_SECONDS := $(SECONDS)
chaos: export CHAOS_RATE := $(RATE)
chaos: export CHAOS_DATABASE := $(DATABASE)
chaos: export CHAOS_REDIS := $(REDIS)
chaos: export CHAOS_FAULTS := $(FAULTS)

# SEED=7: that schedule.   SCHEDULES=1000000: more of them.
model: ## the core alone, over servers in memory, on 700 seeded schedules a second for each core
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(CARGO) test --release --lib -- --nocapture model::every_promise
model: export MODEL_SEED := $(SEED)
model: export MODEL_SCHEDULES := $(or $(SCHEDULES),$(if $(SEED),1,100000))

# SERVERS="redis-8 postgres-18": these alone. COMPAT_DIR: where they are kept, target/compat otherwise.
compat: ## the conformance exam and the main promises on other versions of the servers, as tests/compat/run.sh has them
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql,each test starts the installed servers beside the other one)
	$(call require,npm=npm pip3=python3-pip,these registries have some of the servers)
	tests/compat/provision.sh $(SERVERS)
	$(call with_servers,tests/compat/run.sh $(SERVERS))

# FIRST=order-closer-0.1: a program of the first edition that is there already. Else it is built, from the last commit that was of it.
FIRST = $(abspath $(TARGET))/first/debug/order-closer
upgrade-test: $(FIRST) ## from the first edition to this one and back, with both programs, while orders fall due
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql,the tests start private servers of their own)
	$(call with_servers,$(CARGO) test -- --ignored --nocapture promises::upgrades)
upgrade-test: export FIRST_EDITION = $(abspath $(FIRST))

$(abspath $(TARGET))/first/debug/order-closer:
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	mkdir -p $(TARGET)/first/source
	git archive 5783f99 | tar -x -C $(TARGET)/first/source
	CARGO_TARGET_DIR=$(abspath $(TARGET))/first $(CARGO) build --locked --manifest-path $(TARGET)/first/source/Cargo.toml

# SCENARIOS="burst steady": these alone.   OUT=docs/benchmarks: publish.   ARGS="--seconds 60": see ARGS=--help.
bench: ## beside other ways and bare SQL, in about 40 minutes: tables, JSON, plots in target/bench
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql,the benchmarks start private servers of their own)
	$(if $(filter peers,$(SCENARIOS)),$(call require,rabbitmq-server=rabbitmq-server node=nodejs npm=npm,other products close the same orders))
	$(if $(filter timers,$(SCENARIOS)),$(call require,node=nodejs npm=npm,other products fire a job for each timer))
	$(if $(filter doors,$(SCENARIOS)),$(call require,rabbitmq-server=rabbitmq-server,hints come from one of its queues))
	$(call with_servers,$(CARGO) bench --bench main $(if $(filter doors,$(SCENARIOS)),--features amqp) -- $(SCENARIOS) $(if $(OUT),--out $(OUT)) $(ARGS))

build: ## target/release/order-closer
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(CARGO) build --release

package: ## a binary for glibc 2.17 and later, a Debian package, their sums, in target/package/out
	$(call require,cc=build-essential,build scripts are compiled for this machine)
	$(call require,python3=python3:python3-venv,the compiler that links for old systems comes from PyPI)
	packaging/build.sh

# As root; SUITES="bookworm": these releases alone.
package-test: ## installs, uses, upgrades and purges that package in chroots of Debian
	$(call require,mmdebstrap=mmdebstrap sqlite3=sqlite3,the package is installed in a Debian of its own)
	$(call require,redis-server=redis-server mariadbd=mariadb-server initdb=postgresql openssl=openssl python3=python3,it closes orders in private servers on this machine)
	packaging/test.sh $(TARGET)/package/out/order-closer_*.deb $(SUITES)

# As root, on Debian 12, which is the Dockerfile's.
image-test: ## builds what the Dockerfile does, and lets it close orders in a root directory such as the image's
	$(call require,cc=build-essential:pkg-config,SQLite is compiled from its C source)
	$(call require,sqlite3=sqlite3 redis-server=redis-server mariadbd=mariadb-server initdb=postgresql openssl=openssl python3=python3,it closes orders in private servers on this machine)
	packaging/image-test.sh

lint: ## formatting and lints alone
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --all-features -- -D warnings

snippets: ## copy the clients of examples/clients into the pages that show them
	UPDATE_SNIPPETS=1 $(CARGO) test -- the_pages_show_the_clients

# Pages link to files beside docs/, which are copied beside the book.
docs: ## the documentation as a book, in target/book; needs mdbook
	@command -v mdbook >/dev/null 2>&1 || { echo "mdbook is not installed: '$(CARGO) install mdbook --locked' installs it." >&2; exit 1; }
	mdbook build
	cp -r config examples redis.conf target/book/
	@echo "The book begins at target/book/docs/index.html."

deny: ## licences, sources, known weaknesses and doubles of all crates, as deny.toml has them; needs cargo-deny
	$(CARGO) deny check

comma := ,

# $(call require,PROGRAM=PACKAGE:PACKAGE... ...,REASON): installs the packages of the programs, or files by their paths, that are missing.
define require
@missing=""; \
for pair in $(1); do \
	program="$${pair%%=*}"; \
	command -v "$$program" >/dev/null 2>&1 || [ -e "$$program" ] || ls /usr/lib/postgresql/*/bin/"$$program" >/dev/null 2>&1 || \
		missing="$$missing $$(echo "$${pair#*=}" | tr ':' ' ')"; \
done; \
if [ -n "$$missing" ]; then \
	as_root=""; \
	if [ "$$(id -u)" -ne 0 ]; then as_root="sudo"; fi; \
	if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$$as_root" ] && ! command -v sudo >/dev/null 2>&1; }; then \
		echo "Missing here:$$missing ($(2)). Install that, or run this as root on Debian or Ubuntu." >&2; exit 1; \
	fi; \
	echo "Installing$$missing by apt-get: $(2)."; \
	$$as_root apt-get update -q && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; \
fi
endef

# $(call with_servers,COMMAND): Debian keeps PostgreSQL's programs off the PATH.
define with_servers
@bin="$$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)"; \
echo "$(1)"; PATH="$$PATH$${bin:+:$$bin}" $(1)
endef

# $(call if_installed,SUBCOMMAND,COMPONENT,ARGUMENTS): cargo's, or a word that it is left out; with CI=true a failure.
define if_installed
@if $(CARGO) $(1) --version >/dev/null 2>&1; then \
	echo "$(CARGO) $(1) $(3)"; $(CARGO) $(1) $(3); \
elif [ "$(CI)" = true ]; then \
	echo "cargo $(1) is not installed, and CI leaves nothing out: run 'rustup component add $(2)'." >&2; exit 1; \
else \
	echo "cargo $(1) is not installed; left out ('rustup component add $(2)' installs it)"; \
fi
endef
