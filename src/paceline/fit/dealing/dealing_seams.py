"""The replacements for training on parameter servers; nothing changes without a `ParameterServerStrategy`."""

import keras

from paceline.fit import compat
from paceline.fit.dealing import atomic_updates, dealt_functions, refused_fits, step_trace, trainer_seams
from paceline.strategy.seams import Seam


def rows() -> list[Seam]:
    """The replacements."""
    trainer, variable, hooks = compat.TensorFlowTrainer, keras.Variable, keras.callbacks.CallbackList
    together = "servers add what several workers bring"
    seen = "a callback that looks at logs or outputs waits for them"
    settled = "no step is running any more"
    return [
        Seam(variable, "assign_add", atomic_updates.added, together, in_graphs=True),
        Seam(variable, "assign_sub", atomic_updates.subtracted, together, in_graphs=True),
        Seam(
            keras.random.SeedGenerator,
            "next",
            step_trace.drawn_in_dealt_step,
            "each step has a seed of its own",
            in_graphs=True,
        ),
        Seam(trainer, "_make_function", trainer_seams.dealt, "steps are dealt to workers"),
        Seam(trainer, "make_predict_function", trainer_seams.dealt_prediction, "steps are dealt to workers"),
        Seam(compat.Trainer, "reset_metrics", trainer_seams.after_all_steps, settled),
        Seam(trainer, "predict_on_batch", trainer_seams.predicted_at_once, settled),
        Seam(compat.trainer_module, "potentially_ragged_concat", dealt_functions.put_together, "rows in their order"),
        Seam(hooks, "on_predict_batch_end", trainer_seams.with_outputs, seen),
        Seam(hooks, "on_epoch_end", trainer_seams.with_nan_noticed, "`TerminateOnNaN` sees the whole epoch"),
        Seam(hooks, ("on_train_batch_end", "on_test_batch_end"), trainer_seams.with_first_logs, seen),
        Seam(
            trainer,
            ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"),
            trainer_seams.left_with_nothing_running,
            settled,
        ),
        Seam(trainer, ("fit", "evaluate", "predict"), refused_fits.checked, "what servers cannot do is refused first"),
        Seam(trainer, "_get_metrics_result_or_logs", trainer_seams.of_all_steps, settled),
        Seam(compat.saving_api, ("save_model", "save_weights"), trainer_seams.drained_first, settled, copies=""),
        Seam(keras.Model, "export", trainer_seams.drained_first, settled),
    ]
