"""The type that all generators return, and the marks that separate the parts of a conversation."""
from dataclasses import dataclass

BEGIN, END, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
THINK, THOUGHT = "<think>", "</think>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
RESULT, RESULT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"

# In the order of token ids.
MARKS = [BEGIN, END, PAD, THINK, THOUGHT, USER, ASSISTANT, CALLS, CALLS_END, CALL, CALL_END, RESULT, RESULT_END,
    SEPARATOR]
MARK_ID = {mark: i for i, mark in enumerate(MARKS)}
BEGIN_ID, END_ID, PAD_ID = 0, 1, 2


@dataclass
class Task:
    """A question with its only correct answer.

    answer is the whole output; with reasoning the output is think, then short. final is the value inside the
    answer. A tool task has tools (the offered functions) and call (name, arguments as JSON) instead of an answer,
    result (what the tool returns) and reply.
    """

    kind: str
    user: str
    think: str
    answer: str = ""
    final: str = ""
    short: str = ""
    tools: tuple = ()
    call: tuple = ()
    result: str = ""
    reply: str = ""

    def __post_init__(self):
        self.short = self.short or self.answer
        self.final = self.final or self.answer
