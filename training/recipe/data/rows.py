"""Conversations for the rows of a training batch, as pieces (text or mark, role). The role determines the token's
weight in the loss."""
from .arithmetic import word_problem
from .documents import Document, find_task
from .lists import json_task, list_task
from .talk import talk_task
from .task import (
    ASSISTANT, BEGIN, CALL, CALL_END, CALLS, CALLS_END, END, MARK_ID, RESULT, RESULT_END, SEPARATOR, THINK, THOUGHT,
    USER)
from .tools import describe, forced, offers, request, unoffered

PADDING, PROMPT, OUTPUT = 0, 1, 2  # roles
CHARACTERS_PER_TOKEN = 3.2         # with the project's tokenizer, marks counted as text; decides when a row is full
SYSTEMS = ["You are a helpful assistant.", "You are Sparrow.", "Answer briefly.",
    "You are Sparrow, a helpful assistant."]
FRAMES = ["{}", "{}", "{}", "Solve this problem: {}", "Question: {}", "{}\nGive the answer after ####."]


def turn(task, think, user=""):
    """Returns one question and its answer. The answer of a plain turn begins after </think>, that of a thinking turn
    after <think>."""
    pieces = [(USER, PROMPT), (user or task.user, PROMPT), (ASSISTANT, PROMPT)]
    pieces += [(THINK, PROMPT), (task.think, OUTPUT), (THOUGHT, OUTPUT)] if think else [(THOUGHT, PROMPT)]
    if task.call:
        name, arguments = task.call
        output = [CALLS, CALL, name, SEPARATOR, arguments, CALL_END, CALLS_END]
    else:
        output = [task.short if think else task.answer]
    return pieces + [(text, OUTPUT) for text in output + [END]]


def small_task(r, lists):
    """Returns a task of one or two lines. lists is the share of list tasks, 0.78 - lists that of word problems."""
    x = r.random()
    if x < 0.78 - lists:
        task = word_problem(r)
        task.user = r.choice(FRAMES).format(task.user)
        return task
    if x < 0.78:
        return list_task(r)
    if x < 0.88:
        return json_task(r)
    if x < 0.94:
        return talk_task(r)
    return unoffered(r) if x < 0.955 else find_task(r, r.randint(40, 120))


def opening(r):
    return [(BEGIN, PROMPT)] + ([(r.choice(SYSTEMS), PROMPT)] if r.random() < 0.12 else [])


def fill(pieces, size, more):
    """Appends the results of more() until the row has about size tokens."""
    tokens = 0
    while tokens < size:
        new = more()
        pieces += new
        tokens += sum(len(text) for text, _ in new) / CHARACTERS_PER_TOKEN
    return pieces


def mixed_row(r, size, lists):
    """Returns several small tasks, one after another."""
    return fill(opening(r), size, lambda: turn(small_task(r, lists), r.random() < 0.2))


def demanded(task):
    """Returns a turn with a required call: its marks and the name are given, and have no weight in the loss."""
    name, arguments = task.call
    given = [(text, PADDING) for text in (CALLS, CALL, name, SEPARATOR)]
    return [(USER, PROMPT), (task.user, PROMPT), (ASSISTANT, PROMPT), (THOUGHT, PROMPT), *given,
            *((text, OUTPUT) for text in (arguments, CALL_END, CALLS_END, END))]


def tool_row(r, size, lists):
    """Returns a row with tools and questions that need one of them; some questions need no tool or one that is not
    offered, or require a call."""
    some, think = offers(r), r.random() < 0.3
    task = request(r, *r.choice(some))
    pieces = [(BEGIN, PROMPT), ((r.choice(SYSTEMS) if r.random() < 0.3 else "") + describe([spec for spec, _ in some]),
        PROMPT)]
    if r.random() < 0.12:
        pieces += turn(r.choice([word_problem, talk_task, list_task])(r), think)
    pieces += turn(task, think)
    if r.random() < 0.5:
        pieces += [(RESULT, PROMPT), (task.result, PROMPT), (RESULT_END, PROMPT), (task.reply, OUTPUT), (END, OUTPUT)]
    for _ in range(r.randint(2, 8)):
        x = r.random()
        if x < 0.06:
            pieces += demanded(forced(r, r.choice([word_problem, talk_task, list_task])(r), *r.choice(some)))
        elif x < 0.12:
            pieces += turn(r.choice([word_problem, talk_task])(r), think)
        elif x < 0.17:
            pieces += turn(unoffered(r, [spec["name"] for spec, _ in some]), think)
        else:
            pieces += turn(request(r, *r.choice(some)), think)
    return pieces


def document_row(r, size, lists):
    """Returns a row with a document, which takes most of the tokens, and questions about it."""
    questions = r.randint(3, 12) if size >= 1024 else r.randint(2, 5)
    part = r.choice([1.0, 1.0, r.uniform(0.5, 1.0)])
    document = Document(r, int((size - 36 * questions) * part))
    pieces = opening(r)
    for i in range(questions + 4):
        task = document.ask()
        pieces += turn(task, r.random() < 0.15, document.prompt(task.user) if i == 0 else "")
    return pieces


def shots_row(r, size, lists):
    """Returns a row of solved word problems as plain text, in the form that evaluation programs use."""
    def shot():
        task = word_problem(r)
        return [(f"Question: {task.user}\nAnswer:", PROMPT), (" " + task.answer, OUTPUT), ("\n\n", OUTPUT)]
    return fill([(BEGIN, PROMPT)], size, shot)


def row(r, size, lists):
    """Returns the pieces of one row of about size tokens."""
    if size <= 256:
        kinds = [(mixed_row, 1)]
    elif size <= 512:
        kinds = [(tool_row, 45), (document_row, 30), (mixed_row, 20), (shots_row, 5)]
    else:
        kinds = [(document_row, 68), (shots_row, 16), (mixed_row, 16)]
    return r.choices([k for k, _ in kinds], [w for _, w in kinds])[0](r, size, lists)


def encode(tokenizer, rows):
    """Converts pieces to (ids, roles), one pair per row. Texts between marks are tokenised separately."""
    texts = tokenizer.encode_batch([text for pieces in rows for text, _ in pieces if text not in MARK_ID],
        add_special_tokens=False)
    at, out = iter(texts), []
    for pieces in rows:
        ids, roles = [], []
        for text, role in pieces:
            new = [MARK_ID[text]] if text in MARK_ID else next(at).ids
            ids += new
            roles += [role] * len(new)
        out.append((ids, roles))
    return out
