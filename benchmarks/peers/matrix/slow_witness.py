"""The witness with a slow model, so that a kill finds it at work on a busy machine as well."""

from __future__ import annotations

import sys

from benchmarks.matrix import witness
from benchmarks.peers.matrix.tools import ANSWER_S

if __name__ == "__main__":
    witness.DELAY_S = ANSWER_S
    witness.main(sys.argv[1])
