# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where it is set, every process of every test compiles our sources anew.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := setup.py pacehound collector streams storage alerts actuators simulator web grafana bench tests examples

# A whole Kafka broker, for the tests: the version stands in tests/kafka/pom.xml.
COPY_JARS := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies

.PHONY: demo test check prove package bench debian kafka native gpu format clean

demo: $(VENV)/.embedded
	$(BIN)/pacehound demo

test: $(VENV)/.dev debian
ifneq ($(and $(shell command -v java),$(shell command -v mvn)),)
	$(MAKE) kafka
endif
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit tests/contract
	# Real jobs wait for much of their time: simulated ones fill it.
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not timed and not prove" tests/jobs tests/store tests/native tests/integration
	$(BIN)/python -m pytest -m "timed and not prove" tests/integration # one after the other, with the machine to themselves

check: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	# Can every test be collected, the proofs too, which are run seldom?
	$(BIN)/python -m pytest --collect-only -qq -m "prove or not prove" > $(VENV)/.collected || { tail -n 30 $(VENV)/.collected; false; }

# The long proofs; what they print is committed under docs/proofs/.
prove: $(VENV)/.dev
	# Where there is no wheel for this Python, the fuzzer's tests say so and are skipped.
	-$(BIN)/uv pip install --quiet --only-binary atheris --python $(BIN)/python -c constraints.txt -e '.[prove]'
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 3600 tests/unit tests/contract tests/jobs tests/store
	$(BIN)/python -m pytest -m prove -o addopts="-ra --strict-markers -s" --timeout 7200

# Wheel and sdist into dist/; each is installed into a clean environment and run there. PYTHONS="python3.11 …" for others.
package: $(VENV)/.dev
	rm -rf dist
	PACKAGE_DIR=$(CURDIR)/dist $(BIN)/python -m pytest -m prove -o addopts="-ra --strict-markers" --timeout 1200 \
		tests/integration/test_package.py

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# The page is looked at in Debian's Chromium, alerts are told to its Alertmanager; where they cannot be installed, their tests
# are skipped.
debian:
	command -v chromium > /dev/null && command -v prometheus-alertmanager > /dev/null || \
		{ [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium prometheus-alertmanager > /dev/null; } || true

kafka: .kafka/.fetched

.kafka/.fetched: tests/kafka/pom.xml
	mvn --quiet --batch-mode --file tests/kafka/pom.xml $(COPY_JARS) -DoutputDirectory=$(CURDIR)/.kafka/jars
	touch $@

# The NCCL shim and the profiler plugin, for `pacehound run --nccl …`; they need a C compiler and say so where there is none.
native: $(VENV)/.embedded
	$(BIN)/python -m pacehound.instrument.shim
	$(BIN)/python -m pacehound.instrument.profiler
	$(BIN)/python -m pacehound.instrument.hold

# One GPU, ten minutes: what is seen there and what it costs, into docs/measured-on-gpu.md. Exit status 3 without a GPU.
gpu: $(VENV)/.dev
	$(BIN)/python -m bench.on_gpu

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) .kafka build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

# What the embedded pipeline needs: no torch.
$(VENV)/.embedded: $(BIN)/uv pyproject.toml constraints.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[collector,embedded]'
	$(BIN)/python -m streams.native_loops
	touch $@

# With torch, the test tools and the C++ hooks.
$(VENV)/.dev: $(VENV)/.embedded
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[collector,embedded,engine,dev]'
	# Half a minute; without a compiler the Python hooks do the same, more slowly.
	-$(BIN)/python -c "from pacehound.instrument import build; build.build()"
	touch $@
