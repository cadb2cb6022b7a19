# Two commands on a fresh machine with Python 3.11 or newer and pip: `make demo` and `make test`.
# Both install into .venv once; PYTHON=python3.12 chooses the interpreter, TORCH_INDEX=URL takes torch from an index that
# serves its CPU build.
PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
INSTALLED := $(VENV)/.installed
HOSTS := .venv-hosts
OLDEST := .venv-oldest

.PHONY: demo test test-slow test-hosts test-oldest lint docs clean

demo: $(INSTALLED)
	HF_HUB_OFFLINE=1 $(VENV)/bin/rewards demo --overwrite

test: $(INSTALLED)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest -n 2 --dist loadfile

test-slow: $(INSTALLED)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest -m slow

# The hosts' pins contradict each other and ours: they are installed without their dependencies beside a view of .venv
# (its .pth files too, by which this checkout is installed).
test-hosts: $(HOSTS)/.installed
	HF_HUB_OFFLINE=1 $(HOSTS)/bin/python -m pytest -m hosts tests/hosts

$(HOSTS)/.installed: tests/hosts/requirements.txt $(INSTALLED)
	$(PYTHON) -m venv $(HOSTS)
	$(VENV)/bin/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > "$$($(HOSTS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
	$(HOSTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/hosts/requirements.txt
	touch $@

# The tests with the oldest versions that pyproject.toml allows; those of Python 3.11, for which they were built. The
# oldest datasets takes no newer fsspec; without it uv would rather take a newer datasets.
OLDEST_WITH := fsspec==2026.2.0
test-oldest: $(OLDEST)/.installed
	HF_HUB_OFFLINE=1 $(OLDEST)/bin/python -m pytest

$(OLDEST)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --python $(OLDEST)/bin/python --resolution lowest-direct --editable '.[test]' $(OLDEST_WITH)
	touch $@

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	$(VENV)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

clean:
	rm -rf $(VENV) $(HOSTS) $(OLDEST)

$(INSTALLED): pyproject.toml
	@echo "Installing into $(VENV), once: 6.7 GB on disk with the CUDA libraries that torch brings on Linux."
	@echo "Without them at most 2.6 GB: make demo TORCH_INDEX=URL, of an index that serves the CPU build of torch."
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(VENV)/bin/python -m pip install --disable-pip-version-check --index-url $(TORCH_INDEX) torch torchvision)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --editable '.[dev]'
	touch $@
