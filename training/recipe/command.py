"""Command line: train (all steps from data to golden file), evaluate a checkpoint, draw new items, or build a
tokenizer."""
import argparse
import json
import os
import time
from functools import partial
from pathlib import Path

import torch

from . import against, checkpoint, items, score, shape, vocabulary
from .model import Model, Pass
from .schedule import LENGTHS, Schedule
from .train import Trainer

# Forms of the model that are evaluated: (name, whether weights are rounded, kind of forward pass).
FORMS = [
    ("bf16 dense", False, partial(Pass)),
    ("bf16 sparse", False, partial(Pass, sparse=True)),
    ("fp8 dense", True, partial(Pass)),
    ("fp8 sparse", True, partial(Pass, sparse=True)),
    ("fp8 sparse, fp8 activations", True, partial(Pass, sparse=True, round_inputs=True)),
]


def main():
    a = _arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    log = _log(a.out / "train.log")
    if a.what == "tokenizer":
        vocabulary.build(a.out / "tokenizer.json", shape.read().vocab)
        return
    tokenizer = vocabulary.shipped()
    if a.what == "items":
        items.draw(tokenizer, a.out, a.count, a.seed)
        return
    longest, limit = (512, 2) if a.smoke else (LENGTHS[-1], 0)
    suite = items.shipped(tokenizer, 1300 if a.smoke else 1 << 30, limit)
    model = Model(shape.read(), a.seed, a.device)
    log(f"{model.parameters() / 1e6:.2f} M parameters on {a.device}, {sum(map(len, suite.values()))} items")
    result = {}
    if a.what == "train":
        if a.tune:
            checkpoint.load(model, a.tune)
        schedule = Schedule(steps=a.steps, seed=a.seed, longest=longest, start=a.start)
        trainer = Trainer(model, schedule, a.out, log, a.tokens, fused=model.device.type == "cuda")
        short = {name: some[:30] for name, some in suite.items() if "8192" not in name}
        trainer.run(str(shape.SHIPPED / "tokenizer.json"), a.workers, a.log_every, a.save_every,
                    lambda m, sparse: score.report(m, short, partial(Pass, sparse=sparse)))
        steps = schedule.last()
        result["train"] = dict(steps=steps, tokens=steps * a.tokens, seconds=round(trainer.seconds))
        log(f"trained in {trainer.seconds:.0f} s")
    else:
        checkpoint.load(model, a.model)
    checkpoint.export(model, a.out / "checkpoint")
    every = suite | items.odd(tokenizer, limit or 100)
    result |= force(model, every, log)
    _write(a.out / "result.json", result)
    checkpoint.export(model, a.out / "widened", widened=True)
    result["transformers"] = against.check(model, suite, a.out / "checkpoint", a.out / "widened", a.out / "golden.json")
    log("transformers " + json.dumps(result["transformers"]))
    _write(a.out / "result.json", result)
    model.set_dtype(torch.bfloat16)
    result["fp8 sparse, decoded"] = decode(model, every, log)
    _write(a.out / "result.json", result)


def force(model, suite, log):
    """Returns the teacher-forced accuracy in every form."""
    result = {}
    for name, rounded, how in FORMS:
        model.refresh(rounded)
        result[name] = score.report(model, suite, how)
        log(f"{name}: {json.dumps(result[name])}")
    return result


def decode(model, suite, log):
    """Returns the accuracy of greedy decoding in the shipped form, and logs wrong answers."""
    _, rounded, how = FORMS[3]
    model.refresh(rounded)
    result = {}
    for name, some in suite.items():
        outputs = score.decode(model, some, how)
        missed = [item for item, out in zip(some, outputs) if out != item.answer]
        result[name] = round(100 * (1 - len(missed) / len(some)), 2)
        for item in missed[:8]:
            log(f"  missed {name}: {item.record['messages'][0]['content'][-120:]!r}, expected "
                f"{item.record['answer']!r}")
    log(f"fp8 sparse, decoded: {json.dumps(result)}")
    return result


def _arguments():
    p = argparse.ArgumentParser(prog="python3 -m recipe", description=__doc__)
    p.add_argument("what", choices=["train", "evaluate", "items", "tokenizer"])
    p.add_argument("--out", type=Path, required=True, help="folder of the results; a training found in it goes on")
    p.add_argument("--model", type=Path, default=shape.SHIPPED, help="evaluate: the checkpoint")
    p.add_argument("--smoke", action="store_true",
        help="a few tiny steps of every phase and a few items, to see that everything runs")
    p.add_argument("--steps", type=int, default=10000, help="length of the schedule (10000)")
    p.add_argument("--tune", type=Path, help="train: begin with the weights of this checkpoint")
    p.add_argument("--start", type=float, default=0.0, help="train: position in the schedule to begin at, with --tune")
    p.add_argument("--tokens", type=int, default=65536, help="tokens of a step (65536)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=100, help="items: how many of each kind")
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1),
        help="processes that make data; no effect on the result")
    p.add_argument("--log-every", type=int, default=100)
    p.add_argument("--save-every", type=int, default=1000)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    if a.smoke:
        a.steps, a.tokens, a.log_every, a.save_every, a.workers = 20, 1024, 5, 10, 2
    return a


def _log(path):
    begin = time.time()

    def log(text):
        line = f"[{time.time() - begin:7.1f}] {text}"
        print(line, flush=True)
        with path.open("a") as f:
            print(line, file=f)
    return log


def _write(path, value):
    path.write_text(json.dumps(value, indent=1))
