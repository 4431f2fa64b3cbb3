# Two commands set everything up on a machine with Python 3.10+ and Java 17+: `make demo` and `make test`.
# CONTRIBUTING.md says what each suite needs and how long it takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What the broker needs, and what the demo needs, in the same environment: the first is installed in a tenth of the time, since it
# does without PySpark, and the second in a fourth.
BROKER_STAMP := $(VENV)/.installed-broker
DEMO_STAMP := $(VENV)/.installed-demo
# Spark's own Kafka source is available for Spark 4.2.0, so both are measured on that version.
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed
# The newest Delta Lake whose jars are in Maven Central; it asks for PySpark 4.2.0 and fails on 4.3.
DELTA := delta-spark==4.4.0
DELTA_VENV := .venv-delta
DELTA_STAMP := $(DELTA_VENV)/.installed
# zig's compilers are large.
RELEASE_VENV := .venv-release
RELEASE_STAMP := $(RELEASE_VENV)/.installed

# The tests, the demo and the benchmarks start many Python processes. Without the cache each one compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# Copied by an editable installation; everything else of the package is read where it is.
TOP_LEVEL := spark_groupsource/top_level/pyspark_groupkafka.py

.PHONY: archives bench-runs bench-sink chaos-cluster chaos-sink files install demo broker records registry test test-long unit lint docs pages notebooks pictures test-notebooks test-versions test-matrix test-iceberg test-lower-bounds test-nightly chaos soak native-check wheels test-wheels release bench bench-wide bench-idle bench-starting bench-reconnecting bench-planning bench-coordinator clean

# What an installation depends on. The C of the native reader is compiled by it.
SOURCES := pyproject.toml setup.py $(addprefix spark_groupsource/native/,_native.h _intake.c _outlet.c) $(TOP_LEVEL)
INSTALL := @$(PYTHON) devtools/install.py

$(BROKER_STAMP): $(SOURCES)
	$(INSTALL) $(VENV) -e '.[broker]'
	@touch $@

$(DEMO_STAMP): $(SOURCES)
	$(INSTALL) $(VENV) -e '.[demo]'
	@touch $(BROKER_STAMP) $@

$(STAMP): $(SOURCES)
	$(INSTALL) $(VENV) -e '.[dev]'
	@touch $(BROKER_STAMP) $(DEMO_STAMP) $@

# The environment alone: the package in editable mode, with everything that the tests need.
install: $(STAMP)

# Two Spark queries share a topic; one is stopped and comes back, and every record is counted.
demo: $(DEMO_STAMP)
	@$(BIN)/python -m devtools.demo

# A real Apache Kafka on localhost:9092 until Ctrl-C; make broker BROKER=--help says what can be chosen.
BROKER ?= --port 9092
broker: $(BROKER_STAMP)
	@$(BIN)/python -m devtools.broker $(BROKER)

# Ten records each second into the topic `orders` of localhost:9092, until Ctrl-C; make records RECORDS=--help says what else.
records: $(BROKER_STAMP)
	@$(BIN)/python -m devtools.records $(RECORDS)

# A schema registry, Apicurio's, on localhost:8081 until Ctrl-C; REGISTRY=--help says what can be chosen.
registry: $(BROKER_STAMP)
	@$(BIN)/python -m devtools.registry $(REGISTRY)

# Other targets install what these tests need.
SUITE := not versions and not wheels and not notebooks
# Each file in one process. A process that dies ends the run with its test's name: xdist would give its files to another, in a
# way that leaves some of them waiting for ever.
IN_FILES := --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# Without TESTS lint and all tests that have no target of their own below. One of them builds the site as `make docs` does.
# `make test TESTS=tests/unit/handoff/test_planner.py` runs a file, a folder or, with `::name` after the path, one test.
# The tests run in three processes, since much of their time is waiting. Each has brokers and a Spark session of its own.
ifeq ($(strip $(TESTS)),)
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 lint archives
	$(BIN)/python -m pytest -n 3 $(IN_FILES) -m '$(SUITE) and not long'
else
test: $(STAMP)
	$(BIN)/python -m pytest $(if $(findstring ::,$(TESTS)),,-m '$(SUITE)') $(TESTS)
endif

# The tests that `make test` leaves out because they take long: the demo, most programs of the pages, the wheel, a standalone
# cluster, Spark Connect, pipelines, Scala, clusters of three brokers.
test-long: $(STAMP) archives
	$(BIN)/python -m pytest -n 3 $(IN_FILES) -m long

# What makes the tests' brokers and Sparks start in half the time.
archives: $(STAMP)
	@$(BIN)/python -m tests.harness.classes

# The tests that need no broker, no Java and no Spark session, with few random histories and no exhaustive search; in two processes.
unit: $(STAMP)
	HANDOFF_HISTORIES=100 $(BIN)/python -m pytest -q -n 2 $(IN_FILES) tests/unit tests/harness tests/chaos tests/soak tests/simulation -k 'not every_order and not exhaustive'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages as a site in build/site. A link that leads nowhere, to a page or to a heading, is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(DELTA_STAMP): $(SOURCES)
	$(INSTALL) $(DELTA_VENV) -e '.[cli,notebooks]' '$(DELTA)' 'deltalake>=1.6'
	@touch $@

# Every module of the package, with the first line of it, which says what it is for.
files:
	@grep -rm1 '^"""' --include='*.py' spark_groupsource | sed -e 's/:"""/: /' -e 's/"""$$//' | sort

# What the pages say of options, as the code says it.
pages: $(STAMP)
	@$(BIN)/python -m tools.pages

# Runs the notebooks and writes their outputs into them.
notebooks: $(STAMP) $(DELTA_STAMP)
	$(BIN)/python -m notebooks.execute notebooks/quickstart.ipynb notebooks/quickstart.ipynb
	$(BIN)/python -m notebooks.execute notebooks/exactly_once.ipynb notebooks/exactly_once.ipynb
	$(DELTA_VENV)/bin/python -m notebooks.execute notebooks/delta_pipeline.ipynb notebooks/delta_pipeline.ipynb

# The demo and `groupkafka top` as docs/pictures shows them, from a real run.
pictures: $(STAMP)
	@$(BIN)/python -m tools.pictures

# Runs the notebooks, and leaves what is checked in of them as it is.
test-notebooks: $(STAMP) $(DELTA_STAMP)
	$(BIN)/python -m pytest -n 2 -m notebooks tests/notebooks

# The development broker and the group's life on Kafka 3.9, 4.1 and the newest that resolves.
test-versions: $(STAMP)
	$(BIN)/python -m pytest -m versions

# The tests that run Spark, on the newest patch of Spark 4.0, 4.1, 4.2 and 4.3; make test-matrix SPARKS="4.0 4.1" chooses.
test-matrix: $(STAMP)
	@$(BIN)/python -m tools.matrix $(SPARKS)

# The ways of docs/guide.md to write to Iceberg, which has no jars for a later Spark than 4.1.
test-iceberg: $(STAMP)
	@$(BIN)/python -m tools.matrix 4.1 tests/spark/test_iceberg.py

# Tests with the oldest versions of what the source needs that pyproject.toml allows.
test-lower-bounds: $(STAMP)
	@$(BIN)/python -m tools.lower_bounds

# 100,000 random histories of the hand-off, and a larger exhaustive search.
test-nightly: $(STAMP)
	HANDOFF_HISTORIES=100000 $(BIN)/python -m pytest -n auto --timeout=7200 -o faulthandler_timeout=7500 tests/simulation

# Real queries of one group that are killed, paused and cut off (Linux); make chaos CHAOS=--help says what can be chosen.
chaos: $(STAMP)
	@$(BIN)/python -m tests.chaos $(CHAOS)

# Two queries copy a topic, and are killed, stopped and made to fail (Linux); make chaos-sink SINK=--help says what can be chosen.
chaos-sink: $(STAMP)
	$(BIN)/python -m tests.chaos.copying $(SINK)

# A standalone cluster whose executors, workers and Python daemons are killed (Linux); make chaos-cluster CLUSTER=--help says more.
chaos-cluster: $(STAMP)
	$(BIN)/python -m tests.chaos.cluster $(CLUSTER)

# Three queries of one group for 20 minutes: every record is counted, memory is measured (Linux); make soak SOAK="--hours 24" for a release.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak $(SOAK)

# The tests of the native reader, with its C compiled for AddressSanitizer and UndefinedBehaviorSanitizer.
native-check: $(STAMP)
	$(BIN)/python -m tools.native_check

$(RELEASE_STAMP): $(SOURCES)
	$(INSTALL) $(RELEASE_VENV) -e '.[release]'
	@touch $@

# The sdist, a wheel for each platform and one without the C, in dist/. Every platform's C is compiled and checked on this machine.
wheels: $(RELEASE_STAMP)
	@$(RELEASE_VENV)/bin/python -m tools.wheels

# The same with an SBOM, the release notes and checksums. Nothing is uploaded.
release: $(RELEASE_STAMP)
	@$(RELEASE_VENV)/bin/python -m tools.release

# Runs what `make release` has made: without a compiler, and on the processors and C libraries that this machine can emulate.
test-wheels: $(STAMP) release
	$(BIN)/python -m pytest -m wheels tests/wheels

$(BENCH_STAMP): $(SOURCES)
	$(INSTALL) $(BENCH_VENV) -e '.[cli]' 'pyspark==4.2.0'
	@touch $@

# This source and Spark's own, in turn, with a busy core; make bench BENCH=--help says what can be chosen. Without BENCH, wide
# topics, the sink and short runs are measured too.
bench: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks $(BENCH)
	$(if $(strip $(BENCH)),,@$(BENCH_VENV)/bin/python -m benchmarks.wide)
	$(if $(strip $(BENCH)),,@$(BENCH_VENV)/bin/python -m benchmarks.sink)
	$(if $(strip $(BENCH)),,@$(BENCH_VENV)/bin/python -m benchmarks.short_runs)

# A job that cron starts: whole runs of AvailableNow, beside Spark's own source and sink.
bench-runs: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks.short_runs $(BENCH)

# The sink and Spark's own, in turn, with a busy core.
bench-sink: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks.sink $(BENCH)

# Many partitions with a few records each, beside 4 partitions.
bench-wide: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks.wide $(BENCH)

# What a query costs while it has nothing to read.
bench-idle: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks.idle $(BENCH)

# The processes and the CPU time that a query takes until its first micro-batch is done.
bench-starting: $(BENCH_STAMP)
	@$(BENCH_VENV)/bin/python -m benchmarks.starting $(BENCH)

# The connections and log lines of a query whose brokers are away, and how long a start takes.
bench-reconnecting: $(STAMP)
	@$(BIN)/python -m benchmarks.reconnecting $(BENCH)

# Planning with 1,000 and 10,000 partitions, beside the broker's own answers.
bench-planning: $(STAMP)
	@$(BIN)/python -m benchmarks.planning

# What a group's commits cost its coordinator, beside a Java consumer's.
bench-coordinator: $(STAMP)
	@$(BIN)/python -m benchmarks.coordinator $(BENCH)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DELTA_VENV) $(RELEASE_VENV) .venv-spark-* .venv-lower-bounds build dist *.egg-info spark_groupsource/*/*.so spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
