"""Which parity jobs pipelines train, and how; imports nothing, so that the tests can list them."""

_OWN_STEP = "has its own "
_EAGER = "run_eagerly=True runs a whole step"
_ONE_LAYER = "are more than the model's 1 layers"
_OF_ALL_ROWS = "adds up what layers compute for all rows of a batch"

REFUSED = {
    "an_optimizer_that_clips_in_its_own_apply": _EAGER,
    "added_losses_of_rows_in_own_steps_and_eagerly": _OWN_STEP,
    "batch_normalization_synchronized": _OF_ALL_ROWS,
    "batch_normalization_synchronized_where_ranks_have_no_row": _OF_ALL_ROWS,
    "compiled_for_xla": "Leave jit_compile out",
    "dropout_run_eagerly": _EAGER,
    "five_hundred_steps_fifty_at_a_time": _ONE_LAYER,
    "loss_function_of_one_number_where_ranks_have_no_row": _ONE_LAYER,
    "losses_within_losses": _OF_ALL_ROWS,
    "losses_within_losses_eagerly": _EAGER,
    "own_compute_loss": _OWN_STEP,
    "own_eager_step_that_logs_pythons_numbers": _EAGER,
    "own_loss_that_no_keras_loss_scales": _OWN_STEP,
    "own_step_of_one_loss_per_row": _OWN_STEP,
    "own_step_of_one_loss_per_row_in_batches_of_a_fixed_size": _OWN_STEP,
    "own_step_that_averages_its_gradients": _OWN_STEP,
    "own_step_that_averages_moving_statistics": _OWN_STEP,
    "own_step_that_makes_sparse_gradients_dense": _OWN_STEP,
    "own_step_that_sums_over_normalized_rows": _OWN_STEP,
    "own_step_that_updates_in_a_branch": _OWN_STEP,
    "own_step_without_a_tape": _OWN_STEP,
    "own_steps_in_corners": _OWN_STEP,
    "own_steps_of_papers": _OWN_STEP,
    "own_steps_out_of_functions": _OWN_STEP,
    "own_steps_that_add_up_losses": _OWN_STEP,
    "own_steps_that_change_gradients": _OWN_STEP,
    "own_steps_that_sum_over_rows": _OWN_STEP,
    "own_steps_with_a_keras_loss_for_the_log_only": _OWN_STEP,
    "own_train_step_in_an_unbuilt_model": _OWN_STEP,
    "ragged_sequences": "Received batches of a RaggedTensor",
    "recompiled_and_run_eagerly": _EAGER,
    "rematerialised_layers": _EAGER,
    "two_optimizers_in_one_step": _OWN_STEP,
}
"""Job to words of the reason why no pipeline trains it. Every other one must be trained."""

IN_EVERY_CHECK = (
    "arrays_with_validation_arrays_and_class_weights",
    "embedding_of_positions",
    "evaluate_and_predict",
    "half_precision_with_an_overflow_on_one_rank",
    "losses_of_layers",
    "several_inputs_and_outputs",
    "weights_assigned_from_data",
)
"""Two stages, four micro-batches, `1f1b`; the others, other schedules and replicas are left to `make proof`."""

OF_MANY_LAYERS = (
    "augmentation",
    "dropout",
    "group_and_layer_normalization",
    "masked_lstm",
    "multi_head_attention_with_dropout",
    "noise_and_normalization_of_images",
    "several_inputs_and_outputs",
    "time_distributed_dropout",
)
"""For schedules that cut two stages' models in four."""

OF_TWO_STAGES = (
    *OF_MANY_LAYERS,
    "adam_with_global_clipnorm_and_two_metrics",
    "embedding_of_positions",
    "float32_one_step_of_adam",
    "gradient_accumulation",
    "half_precision_with_an_overflow_on_one_rank",
    "losses_of_layers",
    "metrics_of_one_class",
    "moving_average_of_weights",
)
