"""Every optimizer of Keras with each option that acts on gradients or weights: a job an optimizer.

Not Muon, which multiplies by numbers of float32 whatever the weights are: `in_float32.py` has it.
"""

from typing import Any

import keras
from keras import optimizers

from parity.ingredients import batches, layers, table, train
from parity.registry import register
from parity.rows import EACH_OPTION, OPTIMIZERS

_ROWS = 40
_CLIPS = {"clipnorm", "clipvalue", "global_clipnorm"}


def _options() -> dict[str, dict[str, Any]]:
    return {
        "plain": {},
        "clipnorm": {"clipnorm": 0.05},
        "clipvalue": {"clipvalue": 0.01},
        "global_clipnorm": {"global_clipnorm": 0.05},
        "weight_decay": {"weight_decay": 0.1},
        "moving_average": {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2},
        "accumulation": {"gradient_accumulation_steps": 2, "clipnorm": 0.05},
        "loss_scale": {"loss_scale_factor": 8.0},
        "schedule": {"learning_rate": optimizers.schedules.ExponentialDecay(0.02, 2, 0.5)},
    }


def _model() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), layers.Dense(4)])


def _together(name: str) -> dict[str, dict[str, Any]]:
    """Every third option, beginning elsewhere with each optimizer, all in one fit.

    Together they lead through the same code: one that is not exact shows in the weights. A graph a fit is the cost.
    """
    options, first = _options(), OPTIMIZERS.index(name)
    chosen = [option for index, option in enumerate(options) if (index + first) % 3 == 0]
    together: dict[str, Any] = {}
    for option in chosen:
        # Keras takes one way to clip.
        is_clipped = not _CLIPS.isdisjoint(together)
        together |= {key: value for key, value in options[option].items() if not (is_clipped and key in _CLIPS)}
    return {" and ".join(chosen): together}


def _train(name: str, options: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    optimizer_class = getattr(optimizers, name, None)
    if optimizer_class is None:
        return None
    weights, history = [], {}
    for option, arguments in options.items():
        model, optimizer = _model(), optimizer_class(**{"learning_rate": 0.02, **arguments})
        # Built here: one that the first step builds inside its graph, as plain Keras does without this line, may start
        # over in every step (ScheduleFreeAdamW of Keras 3.15 does).
        optimizer.build(model.trainable_variables)
        result = train(model, optimizer, batches(table(_ROWS)), compile_options={"metrics": None})
        weights += result["model"].get_weights()
        history[option] = result["history"]["loss"]
    return {"weights": weights, "history": history}


for _name in OPTIMIZERS:
    register(f"optimizer_{_name}", lambda name=_name: _train(name, _together(name)))
    register(f"optimizer_{_name}{EACH_OPTION}", lambda name=_name: _train(name, _options()), worlds=())
