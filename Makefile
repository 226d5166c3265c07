# `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo servers test test-fast seeds check deploy workflows msrv deny semver matrix dist docker-command-image bench docker-five-up docker-five-down docker-image docker-up docker-down docker-test

# Tests wait more than they compute: four run on each CPU, and one more for the simulation. .config/nextest.toml lists
# the tests that count for more than one.
export NEXTEST_TEST_THREADS ?= $(shell echo $$((4 * $$(getconf _NPROCESSORS_ONLN) + 1)))

# In a log progress bars and a line per passed test are useless. Failures, slow tests and the sum remain.
ifeq ($(CI),true)
export CARGO_TERM_PROGRESS_WHEN := never
export NEXTEST_HIDE_PROGRESS_BAR := 1
export NEXTEST_STATUS_LEVEL := slow
# A log should also name every failure, not only the first one.
NEXTEST_FLAGS := --no-fail-fast
endif

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 26

demo: ## the whole story on in-process nodes, no server needed
	cargo run -p quorate-cli --no-default-features -- demo

servers: ## what the tests need: a Redis, a Valkey 9, a Postgres and a Consul, in target/servers
	tests/install-servers.sh

test: servers ## every test, on real servers too
	@# nextest runs no doctests, cargo test runs all: so each says what it runs.
	if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --workspace --all-features $(NEXTEST_FLAGS); \
	else \
	  cargo test --workspace --all-features --lib --bins --examples --test simulation; \
	  : "a process for each file: some tests measure their whole process"; \
	  for file in $$(cd tests; ls -d */*.rs */*/mod.rs | grep -vE '^(support|simulation)/|^[a-z]+/mod.rs$$'); do \
	    file=$${file%.rs}; file=$${file%/mod}; cargo test --workspace --all-features --test promises -- "$${file/\//::}::"; \
	  done; \
	  for file in $$(cd cli/tests; ls -d */*.rs torture.rs | grep -v '/mod.rs$$'); do \
	    file=$${file%.rs}; cargo test --workspace --all-features --test command -- "$${file/\//::}::"; \
	  done; \
	fi
	cargo test --doc --all-features

# The tests that .config/nextest.toml lists in the profile `fast`. This needs cargo-nextest.
test-fast: export QUORATE_SIM_SCHEDULES ?= 1000
test-fast: ## after each change: unit tests, conformance in memory, 1,000 schedules, every primitive, most of them on real servers
	tests/install-servers.sh redis valkey consul
	cargo nextest run --workspace --all-features --profile fast --lib --bins --test promises --test command --test simulation

seeds: ## searches anew for a schedule that finds each rule of the simulation when it is off, and notes its seed
	mkdir -p target
	QUORATE_SIM_SEED=1 cargo nextest run --workspace --all-features --test simulation each_rule:: \
	  --success-output immediate --no-fail-fast >target/seeds.log 2>&1 || { cat target/seeds.log; exit 1; }
	sed -n 's/^ *seed of \([A-Za-z]* [A-Za-z]* [0-9]*\)$$/\1/p' target/seeds.log | sort >target/seeds.txt
	@# A line for each test but the one that counts them.
	[[ $$(wc -l <target/seeds.txt) -eq $$(($$(grep -ac '^ *PASS ' target/seeds.log) - 1)) ]]
	mv target/seeds.txt tests/simulation/seeds.txt

# With --locked a check changes nothing, not even Cargo.lock.
check: ## formatting, lints of Rust and Lua, documentation, recipes, every feature on its own; changes nothing
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-features --all-targets -- -D warnings
	tests/install-servers.sh lua
	tests/lua.sh
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features -p quorate
	cargo clippy --locked --manifest-path docker/links/Cargo.toml --target-dir target -- -D warnings
	@# As docs.rs builds it: a badge on what needs a feature. Stable rustdoc makes them only with this variable; set for
	@# cargo, it would build every dependency anew.
	printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$$@"\n' >target/rustdoc-of-docs.rs
	chmod +x target/rustdoc-of-docs.rs
	RUSTDOC="$$PWD/target/rustdoc-of-docs.rs" RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo doc --locked --no-deps --all-features -p quorate
	grep -q 'Available on.*crate feature' target/doc/quorate/fence/redis/index.html
	@# Both packages build from what is in them; nothing that their manifests name is left out, except for tests and benches.
	@# They are only checked: cargo itself would build them. Their files are from now (-m): cargo writes a date of long ago,
	@# which looks unchanged.
	rm -rf target/package
	cargo package --workspace --locked --allow-dirty --no-verify >target/package.log 2>&1 || { cat target/package.log; exit 1; }
	! grep '^warning: ignoring' target/package.log | grep -vE 'ignoring (test|benchmark) `'
	for crate in target/package/quorate-*.crate; do tar -xmzf "$$crate" -C target/package; done
	! find target/package/quorate-* -name tests -o -name 'tests.rs' -o -name benches | grep .
	mv target/package/quorate-cli-*[0-9] target/package/cli
	mv target/package/quorate-[0-9]*[0-9] target/package/library
	printf '[patch.crates-io]\nquorate = { path = "../library" }\n' >>target/package/cli/Cargo.toml
	cargo check --locked --all-features --manifest-path target/package/library/Cargo.toml --target-dir target
	cargo check --all-features --manifest-path target/package/cli/Cargo.toml --target-dir target
	@# What there is without features that are asked for.
	cargo clippy --locked -p quorate --all-targets -- -D warnings
	@# The features are additive only if each one builds without the others, and without warnings: clippy, because
	@# flags for cargo check would build every dependency anew.
	for package in quorate quorate-cli; do \
	  cargo clippy --locked -p $$package --no-default-features -- -D warnings; \
	  features=$$(cargo metadata --locked --no-deps --format-version 1 | python3 -c \
	    'import json, sys; all = json.load(sys.stdin)["packages"]; \
	    print(*next(p for p in all if p["name"] == sys.argv[1])["features"].keys() - {"default"})' $$package); \
	  for feature in $$features; do \
	    echo "cargo clippy --locked -p $$package --no-default-features --features $$feature"; \
	    cargo clippy --locked -p $$package --no-default-features --features "$$feature" -- -D warnings; \
	  done; \
	done
	@# These fetch tools from PyPI, so they are the last.
	tests/deploy.sh
	tests/workflows.sh
	@# A check installs nothing for good. Run these two alone to get the oldest Rust and cargo-deny.
	if $(has-oldest); then $(MAKE) msrv; else echo "NOT RUN: make msrv (Rust $(OLDEST) is not installed)"; fi
	if $(call has,deny,$(DENY)); then $(MAKE) deny OFFLINE=1; else echo "NOT RUN: make deny (cargo-deny $(DENY) is not installed)"; fi

deploy: ## checks the recipes in examples/deploy
	tests/deploy.sh

workflows: ## checks .github: schemas, and dangerous workflows
	tests/workflows.sh

OLDEST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
has-oldest = rustup run $(OLDEST) cargo --version >/dev/null 2>&1

msrv: ## builds both packages with the oldest Rust that they promise
	$(has-oldest) || rustup toolchain install --profile minimal $(OLDEST)
	rustup run $(OLDEST) cargo build --locked --workspace --all-features --target-dir target/msrv

# `make deny` and `make semver` install these, if they are missing or have another version.
DENY := 0.20.2
SEMVER := 0.51.0
has = cargo $(1) --version 2>/dev/null | grep -qwF '$(2)'
tool = $(call has,$(1),$(2)) || cargo install --locked cargo-$(1) --version $(2)

deny: ## licences, sources and known weaknesses of all dependencies (OFFLINE=1: not the weaknesses)
	$(call tool,deny,$(DENY))
	cargo deny --locked check --hide-inclusion-graph $(if $(OFFLINE),bans licenses sources)

semver: ## compares the library's API, without the features outside semver, with the newest published version
	if found=$$(cargo info --registry crates-io quorate 2>&1); then \
	  $(call tool,semver-checks,$(SEMVER)); \
	  cargo semver-checks --package quorate --default-features --features blocking,consul,postgres,serde,tower; \
	else \
	  grep -qF 'could not find `quorate`' <<<"$$found" || { echo "$$found"; exit 1; }; \
	  echo "no version is published yet, so there is nothing to compare with"; \
	fi

matrix: ## the tests that depend on the server, on Redis 7.0, 7.4, 8 and Valkey 8, 9 (SERVERS="redis-8"; SCENARIOS="kill-two")
	tests/matrix.sh

# The target of `make dist`. One for musl makes a static program; it needs that target of rustup, and musl-gcc.
TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
DIST = quorate-$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-$(TARGET)

dist: ## the command, its man pages and completions as an archive in target/dist, and its debug information apart (TARGET=x86_64-unknown-linux-musl)
	$(if $(findstring musl,$(TARGET)),CC_$(subst -,_,$(TARGET))=musl-gcc) \
	  cargo build --locked --profile dist -p quorate-cli --target $(TARGET)
	rm -rf target/dist/$(DIST)*
	mkdir -p target/dist/$(DIST)
	cp cli/README.md LICENSE-APACHE LICENSE-MIT target/dist/$(DIST)
	objcopy --only-keep-debug target/$(TARGET)/dist/quorate target/dist/$(DIST).debug
	objcopy --strip-all --add-gnu-debuglink=target/dist/$(DIST).debug \
	  target/$(TARGET)/dist/quorate target/dist/$(DIST)/quorate
	@# The command itself makes them, so it has to run on this machine.
	target/$(TARGET)/dist/quorate man target/dist/$(DIST)/man/man1
	mkdir target/dist/$(DIST)/completions
	target/$(TARGET)/dist/quorate completions bash >target/dist/$(DIST)/completions/quorate.bash
	target/$(TARGET)/dist/quorate completions elvish >target/dist/$(DIST)/completions/quorate.elv
	target/$(TARGET)/dist/quorate completions fish >target/dist/$(DIST)/completions/quorate.fish
	target/$(TARGET)/dist/quorate completions powershell >target/dist/$(DIST)/completions/_quorate.ps1
	target/$(TARGET)/dist/quorate completions zsh >target/dist/$(DIST)/completions/_quorate
	gzip target/dist/$(DIST).debug
	tar -C target/dist --owner 0 --group 0 --numeric-owner -czf target/dist/$(DIST).tar.gz $(DIST)
	cd target/dist && sha256sum $(DIST).tar.gz >$(DIST).tar.gz.sha256

docker-command-image: dist ## the image quorate-command FROM scratch: the command of `make dist`, and root certificates
	rm -rf target/command-image
	install -D target/dist/$(DIST)/quorate target/command-image/root/usr/bin/quorate
	install -D -m 644 /etc/ssl/certs/ca-certificates.crt target/command-image/root/etc/ssl/certs/ca-certificates.crt
	@# If it is not static, it needs its libraries and their loader, under the paths where it looks for them.
	for file in $$(ldd target/dist/$(DIST)/quorate 2>/dev/null | grep -oE '/[^ :]+ \(0x' | cut -d' ' -f1); do \
	  install -D "$$file" "target/command-image/root$$file"; \
	done
	printf '%s\n' 'FROM scratch' 'COPY root/ /' 'USER 65534:65534' 'ENTRYPOINT ["/usr/bin/quorate"]' \
	  >target/command-image/Dockerfile
	docker build --tag quorate-command target/command-image
	docker run --rm --network none quorate-command --version

bench: ## how fast, against the floor, on five real servers; waiting in line beside polling; read-write locks and several names at once; semaphores; rate limits; what the check of a token costs; and what a layer adds to a request; Consul, where there is one
	tests/install-servers.sh redis valkey postgres
	@# As users build it: the rule switches of test-util take room and time of their own.
	cargo bench --bench speed
	cargo bench --bench line
	cargo bench --bench rate
	cargo bench --bench rwlock --all-features
	cargo bench --bench slots --all-features
	cargo bench --bench fence --all-features
	cargo bench --bench faces --all-features
	if [[ -n $${QUORATE_TEST_CONSUL:-} ]] || tests/install-servers.sh consul; then \
	  cargo build --release -p quorate-cli; \
	  cargo bench --bench consul --all-features; \
	else \
	  echo "there is no Consul here: cargo bench --bench consul was left out"; \
	fi

docker-five-up: ## five masters on 127.0.0.1:7001 to 7005 (LOCAL=1: with an image made here, no registry needed)
	docker/five.sh up $(if $(LOCAL),--local)

docker-five-down: ## stops and removes them
	docker/five.sh down

docker-image: ## the image of docker-five-up LOCAL=1, made from this machine's redis-server
	docker/image/build.sh

docker-test: ## kills, pauses and cuts off masters in containers, and judges what held (LOCAL=1; SCENARIOS="calm kill-two")
	docker/torture.sh test $(if $(LOCAL),--local) $(SCENARIOS)

docker-up: ## only the containers of docker-test, to try things by hand (LOCAL=1)
	docker/torture.sh up $(if $(LOCAL),--local)

docker-down: ## removes them, and what a broken docker-test has left
	docker/torture.sh down
