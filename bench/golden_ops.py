"""Writes cases/ops: every op on small operands, with what numpy or coremltools' value inference
makes of it.

    python bench/golden_ops.py        # needs coremltools, numpy and scipy

Operands named `in_*` are tried as constants and as inputs of the function. Where numpy and coremltools
differ, the difference is printed; docs/semantics.md says which of them is followed, and why.
"""

import pathlib
import sys

from golden import common

MODULES = ["basic", "unary", "reduce", "movement", "drawn", "empty", "layers", "programs"]
FOLDER = pathlib.Path(__file__).parent.parent / "cases" / "ops"

for module in MODULES:
    __import__(f"golden.{module}")

FOLDER.mkdir(parents=True, exist_ok=True)
for op, texts in common.cases.items():
    distinct = dict.fromkeys(texts)
    (FOLDER / f"{op}.case").write_text("\n".join(distinct))
n = sum(len(set(texts)) for texts in common.cases.values())
print(f"{n} cases of {len(common.cases)} ops in {FOLDER.name}")
for op, arguments, mine, theirs in common.disagreements:
    print(f"{op} {arguments}\n  numpy       {mine}\n  coremltools {theirs}", file=sys.stderr)
