# make train    the environment, then the main job: `taut demo`
# make test     the environment, then the tests, but for the few that are marked long
# make test-all all tests, with all examples of every law: before a release
# make test-long  the tests of make test-all that make test leaves out
# make test-ray the tests that need Ray, in an environment of their own, .venv-ray
# make test-jax, test-lightning, test-hf, test-keras  the tests of taut.jax, taut.lightning, taut.hf and taut.keras, each in an environment of its own
# make test-slurm, test-mpi, test-ssh  the tests that need Debian's Slurm, Open MPI or sshd (as root, it installs them)
# make test-netlab  runs over links of 256 kbit/s and 1 Mbit/s, in network namespaces (as root; Debian's iproute2)
# make test-page  the live page beside a real run, in Chromium, with axe-core (as root, it installs Debian's chromium; npm fetches axe-core)
# make test-loggers  --report-to with the real TensorBoard, MLflow and Weights & Biases, in an environment of their own
# make test-opentelemetry  --report-to opentelemetry with the real SDK and exporter
# make test-notebook  examples/notebook.ipynb in a real kernel
# make test-prometheus  a real Prometheus scrapes the dashboard (as root, it installs Debian's)
# make test-lan, test-sign, test-kubernetes  the tests of discovery in a LAN, of signed jobs, and of deploy/kubernetes against the schemas
# make test-compile  the tests of jobs that Cython compiles (it takes a C compiler)
# make test-executable  a job's executable in a bare root: Debian's libc6 and busybox, and nothing else (as root; minutes)
# make test-privacy  the tests of noise in federated rounds, with dp-accounting
# make lint     format, lint and types
# make check    make lint, import direction and the tests of make test
# make docs     the docs site in build/site, with an API reference; a broken link is an error
# make hunt     the tests' laws on new random examples; what fails is printed with its example
# make soak     1,000 random fault plans over every strategy, in virtual time; PLANS=n for another number
# make bench    every benchmark, one after the other
# make fuzz     ten million mutated payloads and frames through the decoders, a million messages through the supervisor
# make clean    remove what was made here, the environment included
#
# Only python3 (3.11 or newer, with venv) is needed. PYTHON=/path/to/python3.12 make test  uses another one.
# The environment is .venv; stamps inside it make the second time quick.

PYTHON ?= python3
VENV   := .venv
PLANS  ?= 1000
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
BENCHES := $(addprefix bench/,codec.py overhead.py startup.py memory.py cluster.py)
WHAT   := pyproject.toml constraints.txt
# Two more than the cores of a small machine: many tests wait, and the processes are forks of one.
JOBS   ?= 4
SIDE_BY_SIDE := -n $(JOBS) --dist worksteal
QUICK  := -m "not long"
# Their tests need packages that make test does not install.
PACKAGED := $(addprefix test-, \
  ray \
  mpi \
  lan \
  jax \
  lightning \
  hf \
  keras \
  privacy \
  sign \
  compile \
  notebook \
  loggers \
  opentelemetry)

# The tests start hundreds of processes: each would compile all of src anew, and of what is installed.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-long $(PACKAGED) test-slurm test-ssh test-netlab test-page test-prometheus test-executable mpirun test-kubernetes docs hunt soak lint check bench fuzz clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: taut needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
	         "try: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: $(PYTHON) -m venv failed; Debian and Ubuntu need: apt install python3-venv" >&2; exit 1; }

# torch first and pinned: a looser request may pull gigabytes of CUDA packages.
$(VENV)/.taut-demo: $(VENV)/pyvenv.cfg $(WHAT)
	$(PIP) install -c constraints.txt torch==2.13.0
	$(PIP) install -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.taut-dev: $(VENV)/.taut-demo
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.taut-docs: $(VENV)/.taut-demo
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

train: $(VENV)/.taut-demo
	$(BIN)/taut demo $(ARGS)

test: $(VENV)/.taut-dev
	@$(BIN)/python -m compileall -q -j 2 src tests/shared  # once, and not once in each process
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(QUICK) $(ARGS)

test-all: $(VENV)/.taut-dev
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

test-long: $(VENV)/.taut-dev
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m long $(ARGS)

$(PACKAGED): test-%: .venv-%/.taut
	.venv-$*/bin/python -m pytest tests/extras/$* $(ARGS)

test-mpi: | mpirun
mpirun:
	@command -v mpirun > /dev/null || apt-get install -y --no-install-recommends openmpi-bin

test-slurm: $(VENV)/.taut-dev
	@PATH="$$PATH:/usr/sbin" command -v slurmctld > /dev/null || \
	  apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge
	$(BIN)/python -m pytest tests/extras/slurm $(ARGS)

test-ssh: $(VENV)/.taut-dev
	@PATH="$$PATH:/usr/sbin" command -v sshd > /dev/null || \
	  apt-get install -y --no-install-recommends openssh-server openssh-client
	$(BIN)/python -m pytest tests/extras/ssh $(ARGS)

test-netlab: $(VENV)/.taut-dev
	@PATH="$$PATH:/usr/sbin" command -v tc > /dev/null || apt-get install -y --no-install-recommends iproute2
	$(BIN)/python -m pytest tests/extras/netlab $(ARGS)

$(VENV)/axe/package/axe.min.js: | $(VENV)/.taut-dev
	@mkdir -p $(VENV)/axe && cd $(VENV)/axe && npm pack --silent axe-core@4.10.3 > /dev/null && tar xzf axe-core-*.tgz

test-page: $(VENV)/.taut-dev $(VENV)/axe/package/axe.min.js
	@command -v chromium > /dev/null || apt-get install -y --no-install-recommends chromium fonts-dejavu-core
	$(BIN)/python -m pytest tests/extras/page $(ARGS)

test-prometheus: $(VENV)/.taut-dev
	@command -v prometheus > /dev/null || apt-get install -y --no-install-recommends prometheus
	$(BIN)/python -m pytest tests/extras/prometheus $(ARGS)

$(VENV)/bare/bin/busybox: | $(VENV)/.taut-dev
	rm -rf $(VENV)/bare $(VENV)/debs && mkdir -p $(VENV)/bare $(VENV)/debs
	cd $(VENV)/debs && apt-get download -qq -o APT::Sandbox::User=root libc6 busybox-static
	for package in $(VENV)/debs/*.deb; do dpkg-deb -x $$package $(VENV)/bare; done
	rm -rf $(VENV)/debs $(VENV)/bare/usr/share

test-executable: $(VENV)/.taut-dev $(VENV)/bare/bin/busybox
	$(BIN)/python -m pytest tests/extras/executable $(ARGS)

# An environment for the tests of one extra: it sees the packages of .venv, and has what the extra adds, and the tests need.
BESIDE_jax := flax equinox
BESIDE_notebook := nbclient nbformat ipykernel
.venv-%/.taut: $(VENV)/.taut-dev
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	@cd .venv-$*/lib/python*/site-packages && echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/$${PWD#*.venv-$*/}')" > shared.pth
	.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[$*]' $(BESIDE_$*)
	@touch $@

test-kubernetes: .venv-kubernetes/.taut
	.venv-kubernetes/bin/python -m pytest --noconftest tests/extras/kubernetes $(ARGS)

.venv-kubernetes/.taut: $(WHAT)
	$(PYTHON) -m venv .venv-kubernetes
	.venv-kubernetes/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt \
	  kubernetes-validate pyyaml pytest pytest-timeout
	@touch $@

docs: $(VENV)/.taut-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

hunt: $(VENV)/.taut-dev
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --hypothesis-profile=hunt $(ARGS)

lint: $(VENV)/.taut-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(QUICK)

soak: $(VENV)/.taut-demo
	$(BIN)/python -m taut.testing.soak --plans $(PLANS) $(ARGS)

bench: $(VENV)/.taut-dev
	@for script in $(BENCHES); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

fuzz: $(VENV)/.taut-dev
	$(BIN)/python bench/fuzz.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-* build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis taut-runs
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
