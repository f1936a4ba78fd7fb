"""A longer context from a config alone: the plan, and the command that serves it with vLLM."""

import ropewalk as rw

planned = rw.plan("llama-3-8b", "32k", "yarn")
print(planned.summary())
for row in planned.serving:
    if row.runtime == "vllm":
        print(row.fit, *row.lines)
