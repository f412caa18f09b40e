"""Accuracy: exact match of whole answers.

Answers are unique, so one teacher-forced pass shows whether greedy decoding gives the answer: any wrong token is an
error. decode generates token by token, and must give the same result.
"""
import torch

from .data.task import END_ID, PAD_ID
from .model import Pass

_STEP = 128  # prompts are padded to multiples of this


def _batches(items, size, most_tokens):
    """Yields items of similar size: (items, padded length)."""
    order = sorted(items, key=size)
    while order:
        length = -(-size(order[-1]) // _STEP) * _STEP
        count = max(1, most_tokens // length // max(1, length // 1024))
        order, batch = order[:-count], order[-count:]
        yield batch, length


@torch.no_grad()
def forced(model, items, how=Pass, most_tokens=1 << 18):
    """Returns (number of items with every token right, share of draft tokens that agree with the model, wrong
    items)."""
    agree = drafts = 0
    wrong = []
    for batch, length in _batches(items, lambda i: len(i.prompt) + len(i.answer), most_tokens):
        ids = torch.full((len(batch), length + 1), PAD_ID)
        for row, item in zip(ids, batch):
            row[:len(item.prompt) + len(item.answer)] = torch.tensor(item.prompt + item.answer)
        on = ids.to(model.device)
        main, draft = (model.logits(h).argmax(-1).view(len(batch), length).cpu()
            for h in model.forward(on[:, :length], on[:, 1:], how()))
        for i, item in enumerate(batch):
            first, last = len(item.prompt) - 1, len(item.prompt) + len(item.answer) - 1
            if not torch.equal(main[i, first:last], ids[i, first + 1:last + 1]):
                wrong.append(item)
            agree += int((draft[i, first:last - 1] == main[i, first + 1:last]).sum())
            drafts += last - 1 - first
    return len(items) - len(wrong), agree / max(1, drafts), wrong


@torch.no_grad()
def decode(model, items, how=Pass, most_tokens=1 << 18):
    """Returns the greedy outputs, one list of ids per item, in the items' order; for every token the whole text is
    computed again. An output ends at the length of the expected answer, because a longer one is wrong."""
    out = {}
    for batch, _ in _batches(items, lambda i: len(i.prompt), most_tokens):
        texts, running = [list(i.prompt) for i in batch], set(range(len(batch)))
        while running:
            at = sorted(running)
            length = -(-max(len(texts[i]) for i in at) // _STEP) * _STEP
            ids = torch.full((len(at), length), PAD_ID)
            for row, i in zip(ids, at):
                row[:len(texts[i])] = torch.tensor(texts[i])
            ids = ids.to(model.device)
            main, _ = model.forward(ids, ids, how())
            ends = torch.tensor([k * length + len(texts[i]) - 1 for k, i in enumerate(at)], device=model.device)
            for i, token in zip(at, model.logits(main[ends]).argmax(-1).tolist()):
                texts[i].append(token)
                if token == END_ID or len(texts[i]) >= len(batch[i].prompt) + len(batch[i].answer):
                    running.discard(i)
        for item, text in zip(batch, texts):
            out[id(item)] = text[len(item.prompt):]
    return [out[id(item)] for item in items]


def report(model, suite, how=Pass):
    """Returns {task: percentage of exact answers}, and the mean over tasks of the share of accepted drafts."""
    found = {name: forced(model, items, how) for name, items in suite.items()}
    line = {name: round(100 * right / len(suite[name]), 2) for name, (right, _, _) in found.items()}
    return line | {"draft": round(100 * sum(share for _, share, _ in found.values()) / len(found), 2)}
