"""Lines of TensorFlow that the screen leaves out."""

import io

import pytest

from paceline.launcher.output.screen import Screen
from paceline.launcher.output.text_stream import TextOutput
from paceline.launcher.output.worker_output import WorkerOutput
from paceline.rendezvous.agent_messages import Stream

START = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795538075.522078    7291 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available \
CPU instructions in performance-critical operations.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate flags.
2026-03-02 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see slightly
W0000 00:00:1795810438.310277   22933 util.cc:163] Not handling type DT_DOUBLE
I0000 00:00:1795538086.178480    7291 grpc_server_lib.cc:467] Started server with target: grpc://127.0.0.1:25692
"""
LOST = """\
E0000 00:00:1795541409.742898   29601 context.cc:873] Failed to register function remotely due to failed to connect
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.eager:
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"failed to connect to all addresses"}
This could happen if the remote target has been disconnected from the client.
"""
SHOWN = """\
W0000 00:00:1795538086.178480    7291 retracing.cc:46] a warning of TensorFlow's
E0000 00:00:1795538086.178480    7291 cuda_platform.cc:51] failed call to cuInit: UNKNOWN ERROR (303)
To enable the following instructions: read the manual
the script's own words
"""


@pytest.mark.parametrize("shows_all", [False, True])
def test_only_known_lines_are_left_out_and_only_of_the_screen(shows_all: bool) -> None:
    """Each run began with six lines of TensorFlow's, and a killed server added dozens."""
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(TextOutput(out, {}), TextOutput(err, {}), {0: "chief"}, shows_all=shows_all)
    output = WorkerOutput(0, screen, None)
    output.feed(Stream.ERR, (START + LOST + SHOWN).encode(), 0.0)
    output.feed(Stream.OUT, START.encode(), 0.0)
    assert out.getvalue().count("\n") == START.count("\n"), "what the script prints is the script's"
    expected = (START + LOST if shows_all else "") + SHOWN
    assert err.getvalue() == "".join(f"[chief] {line}\n" for line in expected.splitlines())
