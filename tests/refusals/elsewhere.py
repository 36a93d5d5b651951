"""Codes whose messages need more than a command line or a call: why, and the test that has them."""

TESTED_BY: dict[str, tuple[str, str]] = {
    # Several programs, or one that is killed.
    "agent-lost": ("an agent is killed", "rendezvous/test_by_hand.py"),
    "chief-lost": ("a chief is killed", "strategy/test_serving.py"),
    "crash-loop": ("a process that dies six times", "launcher/generations/test_auxiliaries.py"),
    "descriptors-closed": ("a script that closes what it has not opened", "bootstrap/test_agent_line.py"),
    "every-worker-runs-this": ("workers that race for a file", "bootstrap/test_worker_exit.py"),
    "hang": ("ranks that make no step", "comm/test_by_hand_world.py"),
    "host-failed": ("a host that cannot start its workers", "launcher/test_head.py"),
    "host-lost": ("an agent of another host", "launcher/hosts/test_remote_agent.py"),
    "host-unreachable": ("an agent of another host", "launcher/hosts/test_remote_agent.py"),
    "hosts-differ": ("hosts with other versions", "launcher/hosts/test_remote_agent.py"),
    "independent": ("a script that ends", "end_to_end/test_own_loops.py"),
    "killed": ("a worker is killed", "rendezvous/test_by_hand.py"),
    "launch-failed": ("a job that `paceline.launch` starts", "test_launching.py"),
    "mpi-world": ("MPI is initialised once in a process", "comm/test_started_by_mpiexec.py"),
    "no-keyboard": ("a job with a terminal", "bootstrap/test_keyboard.py"),
    "no-restart": ("a job that fails", "launcher/test_head_interrupted.py"),
    "not-linux": ("a process that is told to be on another system", "cli/test_other_launchers.py"),
    "once-failed": ("four workers, of which one fails", "fit/files/test_once.py"),
    "once-result": ("four workers, of which one fails", "fit/files/test_once.py"),
    "open-files": ("a shell with a limit", "launcher/test_running.py"),
    "other-stage": ("ranks in stages", "pipeline/pipeline_job.py"),
    "out-of-memory": ("a control group with a limit", "launcher/test_agent_failures.py"),
    "plan-model": ("a process that profiles a model", "cli/test_plan_verb.py"),
    "rank-lost": ("a rank is killed", "rendezvous/test_by_hand.py"),
    "server-lost": ("a server is killed", "strategy/test_serving.py"),
    "server-threads": ("a process without servers for other tests", "strategy/test_parameter_server.py"),
    "snapshot-locked": ("two jobs with one directory", "store/test_directory_lock.py"),
    "stage-failed": ("ranks in stages", "pipeline/test_refused_stages.py"),
    "start-timeout": ("servers that do not come", "strategy/test_serving.py"),
    "stopped": ("a signal", "launcher/test_head_interrupted.py"),
    "worker-failed": ("a worker that fails", "bootstrap/test_worker_exit.py"),
    "worker-left": ("a worker that ends before the others", "launcher/test_departures.py"),
    # Lines of a log: nothing is refused, or the job goes on without what is.
    "batch-statistics": ("a line of a job with an option", "fit/test_batch_statistics.py"),
    "event-sink": ("a line on a function that raised", "events/test_bus.py"),
    "events-file": ("a line on a file of the head", "events/test_json_lines.py"),
    "job-directory": ("a folder of another user", "launcher/live/test_status_socket.py"),
    "messages": ("a line on a step", "fit/test_divided.py"),
    "metrics-port": ("a line of a launcher", "launcher/live/test_metrics_port.py"),
    "missing-item": ("data that threads make", "fit/test_missing_data.py"),
    "straggler": ("a line on a slow rank", "fit/test_step_words.py"),
    "verify": ("a rule that is wrong", "fit/test_verification.py"),
    "version": ("a Keras without a name", "seams/test_table.py"),
    "whole-rows": ("a line on a step", "fit/test_divided.py"),
    "whole-steps": ("a line on a loop", "end_to_end/test_own_loops.py"),
}
"""By code: what it needs, and a file of tests that names it."""

NOT_PROVOKED: dict[str, str] = {
    "not-ended": "a process that outlives SIGKILL: only process 1 of a container does",
    "steps-per-execution": "Keras 3.10, which newer ones replace",
    "worker-lost": "a worker of parameter servers that was started by hand, is killed, and started again",
}
"""By code: why no test provokes it."""
