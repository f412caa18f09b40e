"""Muon for matrices inside layers, AdamW for embeddings, head, norms, router and indexer."""
import torch

MUON = ["q_a", "q_b", "kv_a", "kv_b", "out", "dense_gate", "dense_up", "dense_down", "expert_gate", "expert_up",
    "expert_down", "draft_join"]
MUON_RATE, DECAY, MOMENTUM = 0.02, 0.05, 0.95
ADAM_RATE = {"embed": 4e-3}  # the others: 2e-3


@torch.no_grad()
def orthogonal(x):
    """Returns the nearest matrix with singular values near 1, by five Newton-Schulz steps with the coefficients of the
    Muon paper."""
    tall = x.shape[-2] > x.shape[-1]
    x = (x.mT if tall else x).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


class Optimiser:
    def __init__(self, model):
        self.model = model
        self.momentum = {n: torch.zeros_like(model.master[n]) for n in MUON}
        self.adam_names = [n for n in model.master if n not in MUON]
        groups = [dict(params=[model.master[n]], base=ADAM_RATE.get(n, 2e-3), index=n.startswith("index_"))
            for n in self.adam_names]
        self.adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True)

    @torch.no_grad()
    def step(self, rate):
        """Takes a step with all learning rates times rate; the indexer, which learns later, keeps its full rate
        longer."""
        model = self.model
        for n in self.adam_names:
            model.master[n].grad = model.grad[n].float()
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * (min(1.0, 2 * rate) if group["index"] else rate)
        self.adam.step()
        for n in MUON:
            g, m, w = model.grad[n].float(), self.momentum[n], model.master[n]
            m.lerp_(g, 1 - MOMENTUM)
            update, rows, columns = self._update(n, g.lerp(m, MOMENTUM))
            w.mul_(1 - MUON_RATE * DECAY * rate).add_(update, alpha=-MUON_RATE * rate * max(1.0, rows / columns) ** 0.5)
        for g in model.grad.values():
            g.zero_()

    def _update(self, name, g):
        """Returns the orthogonal update and the size of one matrix; experts are separate matrices in a stack."""
        s = self.model.shape
        if name in ("expert_gate", "expert_up"):
            parts = g.unflatten(1, (s.experts + 1, s.expert_hidden))
            return orthogonal(parts).flatten(1, 2), s.expert_hidden, s.hidden
        if name == "expert_down":
            parts = g.unflatten(2, (s.experts + 1, s.expert_hidden)).transpose(1, 2)
            return orthogonal(parts).transpose(1, 2).flatten(2), s.hidden, s.expert_hidden
        return orthogonal(g), g.shape[-2], g.shape[-1]

    def state(self):
        return dict(momentum=self.momentum, adam=self.adam.state_dict())

    def restore(self, state):
        for n, m in state["momentum"].items():
            self.momentum[n].copy_(m)
        self.adam.load_state_dict(state["adam"])
