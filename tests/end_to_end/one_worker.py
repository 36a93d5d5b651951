"""python one_worker.py DIRECTORY: the reference, without Paceline and without a strategy."""

import sys

import keras
from training import flat, model_and_compile, save, train

save(sys.argv[1], "one_worker", 0, train())
keras.utils.set_random_seed(100)
save(sys.argv[1], "initial_weights", 0, {"weights": flat(model_and_compile())})
assert "paceline" not in sys.modules
