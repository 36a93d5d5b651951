"""``python -m paceline.doctor.host_side``: what the doctor starts on each host. Answers questions until nobody asks.

    examination.py ──► ssh ──► host_side.py     AskClock      ──► Clock
                                                AskCondition  ──► Condition
                                                Listen        ──► Listening        (the second host of a pair)
                                                Meet          ──► Met              (the first one)

Each is one line of JSON on standard input or output, where nothing else is written.
"""

import os
import sys
import time

from paceline.doctor.host_condition import condition
from paceline.doctor.pair_speed import listen, meet
from paceline.doctor.records import Answer, AskClock, AskCondition, Clock, Listen, Listening, Question
from paceline.launcher.hosts.ssh_line import PREAMBLE
from paceline.wire.codec import Decoder, encode


def answer(question: Question) -> Answer:
    """What this host answers."""
    if isinstance(question, AskClock):
        return Clock(time.time())
    if isinstance(question, AskCondition):
        return condition(question)
    if isinstance(question, Listen):
        return Listening(listen(question.key))
    return meet(question)


def serve(questions: int, answers: int) -> None:
    """Answers until the other side closes.

    Args:
        questions: The descriptor of what is asked.
        answers: Of what is answered.
    """
    decode = Decoder[Question](Question)
    with open(questions, "rb") as asked, open(answers, "wb", buffering=0) as said:
        said.write(PREAMBLE)
        said.writelines(encode(answer(decode(line))) + b"\n" for line in asked)


def main() -> None:
    """Serves whoever started this process."""
    questions, answers = os.dup(0), os.dup(1)
    # What anything in this process prints by mistake must not get between the answers.
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        serve(questions, answers)
    except BrokenPipeError:  # whoever asked is gone
        sys.exit(1)


if __name__ == "__main__":
    main()
