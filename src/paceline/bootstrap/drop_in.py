"""Paceline's classes under `tf.distribute`'s names, from the moment the script imports TensorFlow.

Every spelling of `tf.distribute.MultiWorkerMirroredStrategy` goes through a few generated modules of TensorFlow and
their `experimental` twins; the names in them are replaced right after each has been executed. TensorFlow's own classes
stay where they are defined.
"""

from collections.abc import Mapping
from types import ModuleType

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.importing import after_import
from paceline.seams.install import install_with_keras

_MODULES = (
    "tensorflow._api.v2.distribute",
    "tensorflow._api.v2.compat.v2.distribute",
    "tensorflow.compat.v2.distribute",  # another copy of the one above, when it is imported under this name
)


def serve_distribute_names(variables: Mapping[str, str]) -> None:
    """Arranges for the drop-in classes and the seam with Keras; ``--no-drop-in`` leaves `tf.distribute` alone."""
    install_with_keras()
    if not read_variables(JobOptions, variables, "drop_in").drop_in:
        return
    # After TensorFlow as a whole: Paceline's classes are built on it.
    after_import("tensorflow", _serve)


def _serve(tensorflow: ModuleType) -> None:
    import sys

    from paceline.strategy import mirrored, multi_worker_mirrored, parameter_server

    classes = {
        "OneDeviceStrategy": mirrored.OneDeviceStrategy,
        "MirroredStrategy": mirrored.MirroredStrategy,
        "MultiWorkerMirroredStrategy": multi_worker_mirrored.MultiWorkerMirroredStrategy,
        "ParameterServerStrategy": parameter_server.ParameterServerStrategy,
    }
    experimental = {
        "MultiWorkerMirroredStrategy": multi_worker_mirrored.ExperimentalMultiWorkerMirroredStrategy,
        "ParameterServerStrategy": parameter_server.ParameterServerStrategy,
    }
    del tensorflow
    for name in _MODULES:
        for module_name, served in ((name, classes), (f"{name}.experimental", experimental)):

            def put(module: ModuleType, served: Mapping[str, type] = served) -> None:
                for attribute, class_ in served.items():
                    setattr(module, attribute, class_)

            if module_name in sys.modules:
                put(sys.modules[module_name])
            else:
                after_import(module_name, put)
