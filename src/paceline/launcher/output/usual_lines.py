"""Lines of TensorFlow's stderr that say nothing to a user: of its start, and of messages that are lost with a process.

They stay in the logs (``--log-dir``), and on the screen where TF_CPP_MIN_LOG_LEVEL=0 asks for all that TensorFlow says.
Pure.
"""

import re
from collections.abc import Mapping

_STAMP = r"(?:[IWE]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d[ T][\d:.]+: [IWE] )(?:[\w./-]*/)?"
"""absl's: level, date, time, thread; and TensorFlow's older one."""

_HEADS = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rf"|{_STAMP}(?:"
    r"cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized to use available CPU instructions"
    r"|port\.cc:\d+\] oneDNN custom operations are on\."
    r"|cudart_stub\.cc:\d+\] Could not find cuda drivers on your machine, GPU will not be used\."
    r"|grpc_server_lib\.cc:\d+\] Started server with target: "
    # Of its graph optimizer, which leaves double precision as it is.
    r"|util\.cc:\d+\] Not handling type DT_"
    r"|generator_dataset_op\.cc:\d+\] Memory patch applied: "
    # The functions and tensors of a process that is lost; the launcher names the process.
    r"|context\.cc:\d+\] Failed to register function remotely due to "
    r"|destroy_tensor_handle_node\.h:\d+\] Ignoring an error encountered when deleting remote tensors handles: "
    r")"
)

_REST = re.compile(
    r"To enable the following instructions: "
    r"|Additional GRPC error information from remote target "
    r"|:UNKNOWN:"
    r"|This could happen if the remote target has been disconnected from the client\."
)
"""What may follow in lines of its own."""


def asks_for_all(variables: Mapping[str, str]) -> bool:
    """Whether the user wants all that TensorFlow says."""
    return variables.get("TF_CPP_MIN_LOG_LEVEL") == "0"


class UsualLines:
    """Recognises them, in the stderr of one process after the other."""

    def __init__(self) -> None:
        self._in_record: set[int] = set()

    def has(self, rank: int, text: str) -> bool:
        """Whether the next line of `rank` is one of them."""
        if _HEADS.match(text) or (rank in self._in_record and _REST.match(text)):
            self._in_record.add(rank)
            return True
        self._in_record.discard(rank)
        return False
