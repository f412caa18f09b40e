"""The training loop. It saves its state at intervals, and continues from a saved state."""
import dataclasses
import json
import time

import torch
import torch.nn.functional as F

from .checkpoint import export
from .data.rows import OUTPUT, PROMPT
from .feed import Feed
from .model import Pass
from .optimise import Optimiser

PROMPT_WEIGHT = 0.1   # weight of the loss on prompt tokens
DRAFT_WEIGHT = 0.3    # weight of the loss two tokens ahead
INDEX_ROWS = 256      # query rows per sequence on which the indexer is trained
BALANCE = 0.001       # step of the router's bias


class Trainer:
    """Trains a model. tokens is the number of tokens of a batch; fused selects compiled layers."""

    def __init__(self, model, schedule, out, log, tokens, fused):
        self.model, self.out, self.log, self.tokens, self.fused = model, out, log, tokens, fused
        self.optimiser = Optimiser(model)
        self.schedule = self._resume(schedule)
        self.seconds = 0.0

    def run(self, tokenizer_path, workers, log_every, save_every, probe, until=None):
        """Trains to the end of the schedule, or to step `until`; probe(model, sparse) returns a short report at every
        save."""
        schedule, model = self.schedule, self.model
        first, last = schedule.first, min(schedule.last(), until or schedule.last())
        if first >= last:
            return
        feed = Feed(tokenizer_path, schedule, self.tokens, max(1, min(workers, last - first)))
        try:
            model.refresh(schedule.phase(first).sparse)
            model.fuse(self.fused)
            begin, marked, waited = time.time(), time.time(), 0.0
            for step in range(first, last):
                asked = time.time()
                ids, roles = feed.get(step)
                waited += time.time() - asked
                found = self._step(step, ids, roles)
                if (step + 1 - first) % log_every == 0 or step + 1 == last:
                    now = time.time()
                    speed = log_every * self.tokens / (now - marked) / 1e6
                    self.log(f"{self._line(step, found)} wait {waited:.1f} s {now - begin:.0f} s {speed:.2f} M "
                        f"tokens/s")
                    marked = now
                if (step + 1) % save_every == 0 and step + 1 < last:
                    self.save(step + 1)
                    model.fuse(False)
                    self.log("probe " + json.dumps(probe(model, schedule.phase(step).sparse)))
                    model.fuse(self.fused)
                    marked = time.time()
            self.save(last)
            self.seconds = time.time() - begin
        finally:
            model.fuse(False)
            feed.close()

    def _step(self, step, ids, roles):
        """Trains on one batch; returns the values for the log."""
        model, schedule, device = self.model, self.schedule, self.model.device
        phase, length = schedule.phase(step), ids.shape[1] - 2
        ids, roles = (_to_device(a, device) for a in (ids, roles))
        ids = ids.long()
        weight = (roles == OUTPUT) + PROMPT_WEIGHT * (roles == PROMPT)
        how = Pass(sparse=phase.sparse)
        if phase.index and length > model.shape.top and (not phase.sparse or step % 2 == 0):
            how.index_rows = self._index_rows(step, roles, length)
        hidden = model.forward(ids[:, :length], ids[:, 1:length + 1], how)
        losses = []
        for ahead, h in enumerate(hidden, 1):
            w = weight[:, ahead:length + ahead].reshape(-1)
            each = F.cross_entropy(model.logits(h), ids[:, ahead:length + ahead].reshape(-1), reduction="none")
            losses.append((each * w).sum() / w.sum())
        (losses[0] + DRAFT_WEIGHT * losses[1] + how.index_loss).backward()
        self.optimiser.step(schedule.rate(step))
        with torch.no_grad():
            load = torch.stack(how.load)
            model.bias += (BALANCE if schedule.position(step) < 0.9
                else BALANCE / 5) * (load.mean(-1, keepdim=True) - load).sign()
        model.refresh(schedule.phase(step + 1).sparse)
        index = how.index_loss.detach() if how.index_rows is not None else 0.0
        return dict(loss=losses[0].detach(), draft=losses[1].detach(), index=index, load=load, length=length)

    def _index_rows(self, step, roles, length):
        """Returns the positions on which the indexer is trained: mostly those of answers, drawn from the seed and the
        step."""
        chance = torch.where(roles[:, 1:length + 1] == OUTPUT, 8.0, torch.where(roles[:, :length] > 0, 1.0, 1e-3))
        g = torch.Generator(device=roles.device).manual_seed(self.schedule.seed * 1_000_003 + step)
        return torch.multinomial(chance, min(INDEX_ROWS, length // 4), generator=g)

    def _line(self, step, found):
        s, load = self.schedule, found["load"]
        index = float(found["index"]) / (self.model.shape.layers + 1)
        return (f"step {step + 1} position {s.position(step + 1):.3f} {s.phase(step).name} length {found['length']} "
            f"rate {s.rate(step):.3f} "
                f"loss {float(found['loss']):.4f} draft {float(found['draft']):.4f} index {index:.4f} "
                f"fullest expert {float((load.max(-1).values / load.mean(-1)).max()):.2f}")

    def save(self, step):
        """Writes the state to a temporary file and renames it, so that an interruption keeps the previous state; also
        writes the model."""
        state = dict(master=self.model.master, bias=self.model.bias, optimiser=self.optimiser.state(), step=step,
                     position=self.schedule.position(step), seed=self.schedule.seed)
        new = self.out / "state.new"
        torch.save(state, new)
        new.replace(self.out / "state.pt")
        export(self.model, self.out / "checkpoint")

    def _resume(self, schedule):
        path = self.out / "state.pt"
        if not path.exists():
            return schedule
        state = torch.load(path, map_location=self.model.device, weights_only=True)
        if state["seed"] != schedule.seed:
            raise ValueError(f"{path} was made with seed {state['seed']}, not {schedule.seed}: take another folder")
        for n, w in state["master"].items():
            self.model.master[n].copy_(w)
        self.model.bias.copy_(state["bias"])
        self.optimiser.restore(state["optimiser"])
        self.log(f"goes on at step {state['step']}, position {state['position']:.3f}")
        return dataclasses.replace(schedule, first=state["step"], start=state["position"])


def _to_device(a, device):
    t = torch.from_numpy(a)
    return t.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else t
