"""python early_agent.py HOW: starts this process's agent early, and prints the numbers of its children.

HOW: "once", "forks" (a child that lives on, then this process is killed), "spawns" (in a child of `multiprocessing`).
"""

import multiprocessing
import os
import signal
import sys

import psutil

from paceline.rendezvous.attaching import start_agent_early


def begin() -> None:
    start_agent_early(os.environ)
    print("children", *(child.pid for child in psutil.Process().children()), flush=True)


if __name__ == "__main__":
    match sys.argv[1]:
        case "once":
            begin()
        case "spawns":
            child = multiprocessing.get_context("spawn").Process(target=begin)
            child.start()
            child.join()
        case "forks":
            begin()
            if (forked := os.fork()) == 0:
                signal.alarm(120)  # the test kills this child, which must do nothing but hold the line
                signal.pause()
            print("forked", forked, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
