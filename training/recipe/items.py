"""Evaluation items: the shipped task files, and new items of the same kinds from another seed than that of training."""
import gzip
import json
import random
from dataclasses import dataclass

from .data.arithmetic import word_problem
from .data.documents import find_task
from .data.lists import json_task, list_task
from .data.rows import OUTPUT, PROMPT, encode, turn
from .data.talk import talk_task
from .data.task import ASSISTANT, BEGIN, END, END_ID, THOUGHT, USER
from .data.tools import describe, tool_task, unoffered
from .shape import ROOT

SHIPPED_TASKS = ROOT / "internal" / "eval" / "tasks"


@dataclass
class Item:
    prompt: list   # token ids up to the answer
    answer: list   # token ids of the answer, including the end mark
    record: dict   # the line of the task file


def shipped(tokenizer, tokens=1 << 30, limit=0):
    """Returns {task: items} of the task files, without prompts of more than the given number of tokens: the first
    `limit` items of each task, or all if limit is 0."""
    out = {}
    for path in sorted(SHIPPED_TASKS.glob("*.jsonl*")):
        with (gzip.open(path, "rt") if path.suffix == ".gz" else path.open()) as f:
            records = [json.loads(line) for line in f]
        # Conversations that continue after a call are omitted, because the server scores them.
        items = [_item(tokenizer, record) for record in records if record["tokens"] <= tokens
                 and len(record["messages"]) == 1]
        if items:
            out[path.name.split(".")[0]] = items[:limit] if limit else items
    return out


def _item(tokenizer, record):
    (message,) = record["messages"]
    offered = [(describe([t["function"] for t in record["tools"]]), PROMPT)] if record.get("tools") else []
    head = [(BEGIN, PROMPT), *offered, (USER, PROMPT), (message["content"], PROMPT), (ASSISTANT, PROMPT),
        (THOUGHT, PROMPT)]
    (prompt, _), = encode(tokenizer, [head])
    return Item(prompt, tokenizer.encode(record["answer"], add_special_tokens=False).ids + [END_ID], record)


def odd(tokenizer, count, seed=987654321):
    """Returns {task: items} for tasks without shipped files: facts in odd documents, tools in the form that clients
    use, requests that no tool answers, counting in lists."""
    r = random.Random(seed)
    out = {"odd_one_1024": [made(tokenizer, find_task(r, 984, "one", True)) for _ in range(count)],
           "odd_tool": [made(tokenizer, tool_task(random.Random(f"{seed}/{i}"), False)) for i in range(count)],
           "no_tool": [made(tokenizer, unoffered(random.Random(f"{seed}/{i}/none"))) for i in range(count)],
           "occurrences": []}
    while len(out["occurrences"]) < count:
        task = list_task(r)
        if task.user.startswith("How many times"):
            out["occurrences"].append(made(tokenizer, task))
    return out


def made(tokenizer, task):
    return _item(tokenizer, record(task, tokenizer))


def record(task, tokenizer):
    """Returns a task as a line of a task file."""
    pieces = turn(task, False)
    answer = "".join(text for text, role in pieces if role == OUTPUT and text != END)
    out = dict(task=task.kind, messages=[dict(role="user", content=task.user)], answer=answer, final=task.final)
    if task.tools:
        out["tools"] = [dict(type="function", function=spec) for spec in task.tools]
    out["tokens"] = 0
    out["tokens"] = len(_item(tokenizer, out).prompt)
    return out


def result_record(task):
    """Returns a tool task with the tool's result as a line of a task file; the expected answer is the reply."""
    name, arguments = task.call
    call = dict(id="call_1", type="function", function=dict(name=name, arguments=arguments))
    return dict(task="result", messages=[
        dict(role="user", content=task.user), dict(role="assistant", content="", tool_calls=[call]),
        dict(role="tool", tool_call_id="call_1", content=task.result)],
        answer=task.reply, final=json.loads(task.result)["result"],
        tools=[dict(type="function", function=spec) for spec in task.tools], tokens=0)


def extract_record(task):
    """Returns a JSON task with the schema of its answer as a line of a task file."""
    fields = {name: dict(type="integer" if isinstance(value, int) else "string")
              for name, value in json.loads(task.answer).items()}
    schema = dict(type="object", properties=fields, required=list(fields), additionalProperties=False)
    return dict(task="extract", messages=[dict(role="user", content=task.user)], schema=schema, answer=task.answer,
        final=task.final, tokens=0)


def demonstrations(count=30, seed=20261118):
    """Returns {task: records} for what the page and the documents show: results of tools, and JSON that satisfies a
    schema."""
    return dict(
        result=[result_record(tool_task(random.Random(f"{seed}/result/{i}"), True)) for i in range(count)],
        extract=[extract_record(json_task(random.Random(f"{seed}/extract/{i}"))) for i in range(count)])


def draw(tokenizer, folder, count, seed):
    """Writes new task files: items of every kind and size of the shipped ones, and odd ones."""
    kinds = {f"word{n}": lambda r, n=n: word_problem(r, n) for n in (1, 2, 3, 4)}
    kinds |= dict(list=list_task, json=json_task, tool=lambda r: tool_task(r, True), talk=talk_task)
    for kind, size in [("one", 1024), ("one", 2048), ("one", 4096), ("one", 8192), ("two", 2048), ("hop", 2048)]:
        kinds[f"find_{kind}_{size}"] = lambda r, k=kind, s=size: find_task(r, s - 40, k, False)
    records = {}
    for name, make in kinds.items():
        r = random.Random(f"{seed}/{name}")
        records[name] = [record(make(r), tokenizer) for _ in range(count)]
    records |= {name: [item.record for item in some] for name, some in odd(tokenizer, count, seed).items()}
    records |= demonstrations(count, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in records.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in some))
