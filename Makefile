# make train    the environment, then the main job: `taut demo`
# make test     the environment, then the tests, but for the few that are marked long
# make test-all all tests, with all examples of every law: before a release
# make test-ray the tests that need Ray, in an environment of their own, .venv-ray
# make test-slurm, test-mpi, test-ssh  the tests that need Debian's Slurm, Open MPI or sshd (as root, it installs them)
# make test-netlab  runs over links of 256 kbit/s and 1 Mbit/s, in network namespaces (as root; Debian's iproute2)
# make test-lan, test-kubernetes  the tests of discovery in a LAN, and of deploy/kubernetes against the schemas
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
# One more than the cores of a small machine: many tests wait.
JOBS   ?= 3
SIDE_BY_SIDE := -n $(JOBS) --dist worksteal
QUICK  := -m "not long"

# The tests start hundreds of processes: each would compile all of src anew, and of what is installed.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-ray test-slurm test-mpi test-ssh test-netlab mpirun test-lan test-kubernetes docs hunt soak lint check bench fuzz clean

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

test-ray test-mpi test-lan: test-%: .venv-%/.taut
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

# An environment for the tests of one extra: it sees the packages of .venv, and has what the extra adds.
.venv-%/.taut: $(VENV)/.taut-dev
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	@cd .venv-$*/lib/python*/site-packages && echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/$${PWD#*.venv-$*/}')" > shared.pth
	.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[$*]'
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
