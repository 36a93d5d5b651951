"""Runs the programs beside this one, and writes FOLDER/rank<r>.npz.

python run_all.py FOLDER                                                    one worker, without Paceline
paceline run --workers 2 run_all.py FOLDER MultiWorkerMirroredStrategy      the same
"""

import custom_training  # noqa: F401  # a script
import input_and_saving  # noqa: F401  # a script
import multi_worker_loop  # noqa: F401  # a script
import numpy as np
from ground import folder, rank, results

np.savez(folder / f"rank{rank}.npz", **results)
print("all programs ran", flush=True)
