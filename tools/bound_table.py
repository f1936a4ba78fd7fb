"""Compute the table of bounds that ships with the package: `python -m tools.bound_table`.

About 40 processor minutes, nearly all of it for certified safe bases above 256k: 2 to 6 for a head
size, and 22 for 256. `--certify-to` says up to which length they are swept with proof; longer ones
are sampled and marked so. `--lengths` computes some rows anew and keeps the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ropewalk.lengths import parse_length
from ropewalk.outputs import write_atomically
from ropewalk.theory.bound import infima, safe_bases
from ropewalk.theory.table import FILE

HEAD_SIZES = (64, 80, 96, 128, 256)
LENGTHS = tuple(1024 << i for i in range(11))
SHIPPED = Path(str(resources.files("ropewalk.theory"))) / FILE


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--head-dim", type=int, nargs="+", default=HEAD_SIZES)
    parser.add_argument("--lengths", type=parse_length, nargs="+", default=LENGTHS)
    parser.add_argument("--certify-to", type=parse_length, default=LENGTHS[-1])
    parser.add_argument("--output", type=Path, default=SHIPPED)
    arguments = parser.parse_args(words)
    rows: list[dict[str, object]] = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text(encoding="utf-8"))["rows"]
    for head_dim in arguments.head_dim:
        lengths = arguments.lengths
        rows = [r for r in rows if r["head_dim"] != head_dim or r["length"] not in lengths]
        safe = safe_bases(head_dim, lengths, certify_to=arguments.certify_to)
        for least, most in zip(infima(head_dim, lengths), safe, strict=True):
            rows.append(
                {
                    "head_dim": head_dim,
                    "length": least.length,
                    "infimum_low": least.low,
                    "infimum_high": least.high,
                    "infimum_witness": least.witness,
                    "safe": most.value,
                    "safe_certified": most.certified,
                    "safe_witness": most.witness,
                    "safe_resolution": most.resolution,
                }
            )
        rows.sort(key=lambda row: (row["head_dim"], row["length"]))
        lines = ",\n".join(json.dumps(row) for row in rows)
        write_atomically(arguments.output, f'{{"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
