"""Batches from worker processes. Step s comes from worker s mod n, and its content depends only on the seed and s."""
import multiprocessing
import os

import numpy as np
from tokenizers import Tokenizer

from .data.rows import PADDING, encode, row
from .data.task import PAD_ID


def batch(tokenizer, schedule, step, tokens):
    """Returns ids [rows, length + 2] and roles of the same shape. The draft layer predicts two tokens ahead, so rows
    have two more columns than the length."""
    r, length, lists = schedule.random(step), schedule.length(step), schedule.phase(step).lists
    rows = max(1, tokens // length)
    ids = np.full((rows, length + 2), PAD_ID, np.int16)
    roles = np.full((rows, length + 2), PADDING, np.uint8)
    for i, (a, b) in enumerate(encode(tokenizer, [row(r, length, lists) for _ in range(rows)])):
        n = min(len(a), length + 2)
        ids[i, :n], roles[i, :n] = a[:n], b[:n]
    return ids, roles


class Feed:
    """Makes batches ahead of training in separate processes; close ends them."""

    def __init__(self, tokenizer_path, schedule, tokens, workers):
        context = multiprocessing.get_context("spawn")
        self.first, self.queues, self.processes = schedule.first, [], []
        for w in range(workers):
            queue = context.Queue(maxsize=6)
            process = context.Process(target=_work, args=(tokenizer_path, schedule, tokens, w, workers, queue),
                daemon=True)
            process.start()
            self.queues.append(queue)
            self.processes.append(process)

    def get(self, step):
        return self.queues[(step - self.first) % len(self.queues)].get()

    def close(self):
        for p in self.processes:
            p.terminate()
            p.join()


def _work(tokenizer_path, schedule, tokens, worker, workers, queue):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(tokenizer_path)
    for step in range(schedule.first + worker, schedule.last(), workers):
        queue.put(batch(tokenizer, schedule, step, tokens))
