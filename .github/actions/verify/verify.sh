#!/usr/bin/env bash
# Runs `ropewalk verify` and writes its verdict to the summary and the outputs of a workflow's step.
# Inputs come as environment variables, so that none of them is read as a command.
set -uo pipefail

found="$(mktemp)"
errors="$(mktemp)"
trap 'rm -f "$found" "$errors"' EXIT

words=(--json)
[[ -n "${PLAN:-}" ]] && words+=(--plan "$PLAN")
[[ -n "${LENGTH:-}" ]] && words+=(--length "$LENGTH")
[[ -n "${RUNTIME:-}" ]] && words+=(--runtime "$RUNTIME")
status=0
python -m ropewalk verify "${words[@]}" -- "$MODEL" > "$found" 2> "$errors" || status=$?
cat "$errors" >&2

verdicts=([0]=OK [1]=wrong [3]="not established")
verdict="${verdicts[$status]:-error}"
echo "verdict=$verdict" >> "$GITHUB_OUTPUT"
{
  echo "## ropewalk verify: $verdict"
  echo
  python - "$found" "$errors" << 'PROGRAM'
import sys
from pathlib import Path

import ropewalk as rw
from ropewalk.blocks import Code
from ropewalk.reports.markdown import markdown
from ropewalk.untrusted import read_json

found, errors = map(Path, sys.argv[1:])
blocks = [Code("", errors.read_text(encoding="utf-8").strip())]
if found.stat().st_size:
    blocks = rw.Audit.from_json(read_json(found)).blocks()
print(markdown(blocks, {}))
PROGRAM
} | tee -a "$GITHUB_STEP_SUMMARY"

if [[ "$status" == 3 && "${NOT_ESTABLISHED:-fail}" == pass ]]; then
  exit 0
fi
exit "$status"
