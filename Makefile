# A front door to Meson; nothing is decided here. `make` builds, `make run` shows it, `make test` proves it.
#
#   BUILD=DIR      build directory (build)          PREFIX=DIR     where `make install` puts things (/usr/local)
#   DESTDIR=DIR    staging for packages             ARGS='...'     words for kcheck, bench, soak, stress
#   FUZZ_SECONDS=N time of each target in `make fuzz` (60)

BUILD ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

.PHONY: all run test check kcheck bench bench-grammar bench-constraint bench-server bench-policy soak stress asan tsan fuzz cover lint install uninstall clean help

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) lagoon

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || { echo "meson is missing: run tools/setup.sh" >&2; exit 1; }
	meson setup --prefix $(PREFIX) $(BUILD)

# installs what is missing, builds, asks the demonstration model one thing
run:
	@tools/run.sh $(BUILD)

# the same set-up, then every test that this machine can run
test:
	@tools/setup.sh test
	@tools/test.py $(BUILD)

# the tests of this machine's own build, without set-up and without emulation
check:
	@tools/test.py --native $(BUILD)

kcheck: $(BUILD)/build.ninja
	@ninja -C $(BUILD) tests/kcheck/kcheck
	$(BUILD)/tests/kcheck/kcheck $(ARGS)

bench: all
	$(BUILD)/lagoon bench --mini $(ARGS)

# what constraints cost on a vocabulary of real size; ARGS: a folder of the official test suite, -v, --vocab FILE
bench-grammar: $(BUILD)/build.ninja
	@ninja -C $(BUILD) tests/grammar/bench
	@python3 tests/grammar/realistic.py $(BUILD)/tests/grammar/realistic
	$(BUILD)/tests/grammar/bench tests/golden/structured-cases.jsonl $(BUILD)/tests/grammar/realistic $(ARGS)

# decoding under constraints against free decoding; ARGS: another model, tokens, repetitions, threads, device, drafter
bench-constraint: $(BUILD)/build.ninja
	@ninja -C $(BUILD) bench/bench_constraint
	$(BUILD)/bench/bench_constraint $(or $(ARGS),models/mini.gguf 40 40)

# what the server costs beside the model: decoding, turns of a conversation, large bodies; ARGS: see the program
bench-server: all
	bench/bench_server.py --lagoon $(BUILD)/lagoon $(ARGS)

# what drafting costs where it does not pay, and brings where it does; ARGS: model, drafter, tokens, repetitions, threads, words
bench-policy: $(BUILD)/build.ninja
	@ninja -C $(BUILD) bench/bench_policy
	$(BUILD)/bench/bench_policy $(or $(ARGS),models/mini.gguf models/mini-dflash.gguf)

# the long forms of what `make test` runs a short part of
soak: $(BUILD)/build.ninja
	@ninja -C $(BUILD)
	tools/soak.sh $(BUILD) $(ARGS)

# tests on a machine that stands still now and then, with a clock that leaps; ARGS: see the program
stress: $(BUILD)/build.ninja
	@ninja -C $(BUILD)
	tools/stress.py $(ARGS) $(BUILD)

asan:
	@tools/test.py --native --option b_sanitize=address,undefined --option buildtype=debugoptimized build-asan

tsan:
	@tools/test.py --native --option b_sanitize=thread --option buildtype=debugoptimized build-tsan

fuzz:
	tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

cover:
	@tools/test.py --native --option b_coverage=true --option buildtype=debug build-cover
	tools/cover.sh build-cover

lint: $(BUILD)/build.ninja
	@ninja -C $(BUILD)
	tools/lint.sh $(BUILD)

install: all
	meson install -C $(BUILD) --no-rebuild

uninstall:
	ninja -C $(BUILD) uninstall

clean:
	rm -rf build build-*

help:
	@sed -n '1,5s/^# \{0,1\}//p' Makefile
	@echo "Targets: $$(sed -n 's/^\([a-z][a-z]*\):.*/\1/p' Makefile | tr '\n' ' ')"
