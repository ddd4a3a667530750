#!/usr/bin/env python3
"""Makes small packages with coremltools of kinds that published models seldom are, each with seeded inputs and what must
come out: states, flexible shapes, functions that share weights, images, labels, blocks, lists, every form of compressed
weights, every opset.

usage: coremltools_packages.py OUT_FOLDER

What comes out is computed with numpy, compressed weights are decoded by coremltools' own functions. `read_coremltools.py`
and `read_back.py` use the folder. A kind that coremltools cannot make is named and makes the exit code 1.
Needs: pip install coremltools==9.0 numpy (no torch)
"""

import pathlib
import sys

from peer import common, compressed, interface, programs  # noqa: F401


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    failed = 0
    for name, make in common.made.items():
        try:
            model, *calls = make()
            common.save(out / name, model, calls)
        except Exception as e:  # noqa: BLE001 - whatever a converter raises
            failed += 1
            print(f"{name}: coremltools cannot: {type(e).__name__}: {e}"[:500])
    print(f"{len(common.made) - failed} packages in {out}, {failed} that coremltools cannot make")
    sys.exit(failed > 0)


main()
