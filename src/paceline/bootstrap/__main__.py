"""``python -P -m paceline.bootstrap script.py [args]`` or ``-m module [args]``: how the launcher starts a worker."""

import sys

from paceline.bootstrap.worker import run_worker

if __name__ == "__main__":
    run_worker(sys.argv[1:])
