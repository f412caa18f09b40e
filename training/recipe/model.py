"""The model: weights and forward pass.

Every kind of weight is one float32 tensor, stacked over the layers that have it (`master`, which the optimiser
changes). The forward pass reads copies in the working type (`leaf`, one tensor per layer), which some phases of the
schedule round to FP8 blocks. Their gradients (`grad`) are used for the master weights: straight-through rounding.
"""
import functools
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from . import layers
from .blocks import round_weight

PROJECT = ["norm_in", "q_a", "q_norm", "q_b", "kv_a", "kv_norm", "kv_b"]
INDEX = ["index_q", "index_k", "index_norm", "index_norm_bias", "index_head"]
AFTER = ["out", "norm_post"]
EXPERT = ["router", "expert_gate", "expert_up", "expert_down"]
DENSE = ["dense_gate", "dense_up", "dense_down"]

# Weights that are stored as FP8 blocks, as in DeepSeek-V3.2.
ROUNDED = {"q_a", "q_b", "kv_a", "kv_b", "out", "index_q", "index_k", "dense_gate", "dense_up", "dense_down",
           "expert_gate", "expert_up", "expert_down"}


@dataclass
class Pass:
    """How a forward pass runs, and what it returns in addition to the hidden states."""

    sparse: bool = False
    index_rows: torch.Tensor | None = None  # [B, R] query positions on which the indexer is trained
    round_inputs: bool = False
    index_loss: torch.Tensor | float = 0.0  # sum over layers
    load: list = field(default_factory=list)  # tokens of each expert, one tensor per layer with experts


class Model:
    def __init__(self, shape, seed, device, dtype=torch.bfloat16):
        self.shape, self.device = shape, torch.device(device)
        self.master = _initial(shape, seed, self.device)
        # bias of the router's choice, for layers 1 to `layers`
        self.bias = torch.zeros(shape.layers, shape.experts, device=self.device)
        self.cos, self.sin = layers.rope_tables(shape, self.device)
        self.fuse(False)
        self.set_dtype(dtype)

    def fuse(self, on):
        """Selects the compiled halves of a layer or the plain ones. All training batches have the same number of
        tokens, so one compilation suffices; evaluation has many sizes and is not compiled."""
        if on:
            self._project, self._routed = _compiled(layers.project), _compiled(layers.routed)
        else:
            self._project, self._routed = layers.project, layers.routed

    def set_dtype(self, dtype):
        """Creates the working copies."""
        self.dtype = dtype
        self.copy = {n: w.to(dtype) for n, w in self.master.items()}
        self.grad = {n: torch.zeros_like(c) for n, c in self.copy.items()}
        self.leaf = {n: [c[i].detach().requires_grad_() for i in range(len(c))] for n, c in self.copy.items()}
        for n, leaves in self.leaf.items():
            for i, leaf in enumerate(leaves):
                leaf.grad = self.grad[n][i]

    @torch.no_grad()
    def refresh(self, rounded):
        """Updates the working copies from the master weights. Values are rounded to bfloat16, the type of the
        checkpoint."""
        for n, w in self.master.items():
            self.copy[n].copy_(round_weight(w)[2] if rounded and n in ROUNDED else w.bfloat16())

    def parameters(self):
        return sum(w.numel() for w in self.master.values())

    def forward(self, ids, following, how):
        """Returns for ids and the tokens after them, [B, S] each, the hidden states [N, hidden] that predict one and
        two tokens ahead."""
        b, s = ids.shape
        leaf, eps = self.leaf, self.shape.eps
        cos, sin = self.cos[:s].repeat(b, 1), self.sin[:s].repeat(b, 1)
        x = F.embedding(ids.reshape(-1), leaf["embed"][0])
        for i in range(self.shape.layers):
            x = self._layer(i, x, b, cos, sin, how)
        main = layers.rms(x, leaf["norm"][0], eps)
        nearby = layers.rms(F.embedding(following.reshape(-1), leaf["embed"][0]), leaf["draft_embed_norm"][0], eps)
        x = torch.cat([nearby, layers.rms(main, leaf["draft_hidden_norm"][0], eps)], -1) @ leaf["draft_join"][0].T
        draft = self._layer(self.shape.layers, x, b, cos, sin, how)
        return main, layers.rms(draft, leaf["draft_norm"][0], eps)

    def logits(self, hidden):
        return (hidden @ self.leaf["head"][0].T).float()

    def _layer(self, i, x, b, cos, sin, how):
        shape, n = self.shape, x.shape[0]
        s = n // b
        normed, latent_q, q, k, v = self._project(shape, x, cos, sin, self._weights(PROJECT, i), how.round_inputs)
        q, k, v = (t.view(b, s, shape.heads, shape.key) for t in (q, k, v))
        mask = None
        if s > shape.top and (how.sparse or how.index_rows is not None):
            iq, ik, iw = layers.index_vectors(shape, normed.detach(), latent_q.detach(), cos, sin,
                self._weights(INDEX, i), how.round_inputs)
            iq, ik, iw = iq.view(b, s, *iq.shape[1:]), ik.view(b, s, -1), iw.view(b, s, -1)
            if how.sparse:
                mask = layers.select(iq, ik, iw, shape.top).expand(b, shape.heads, s, s)
            if how.index_rows is not None:
                how.index_loss = how.index_loss + layers.index_loss(iq, ik, iw, q, k, how.index_rows,
                    shape.softmax_scale)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=shape.softmax_scale)
        y = y.transpose(1, 2)[..., :shape.value].reshape(n, shape.heads * shape.value)
        after = self._weights(AFTER, i)
        if i == 0:
            return layers.plain(shape, x, y, after | self._weights(DENSE, 0), how.round_inputs)
        x, load = self._routed(shape, x, y, after | self._weights(EXPERT, i - 1), self.bias[i - 1], how.round_inputs)
        how.load.append(load.detach())
        return x

    def _weights(self, names, i):
        return {n: self.leaf[n][i] for n in names}


@functools.cache
def _compiled(f):
    return torch.compile(f, dynamic=False)


def _initial(shape, seed, device):
    """Returns random matrices, ones for norms, and zeros for the last matrices of residual branches."""
    g = torch.Generator().manual_seed(seed)  # on the CPU, so that every device starts with the same weights
    every, experts, d = shape.layers + 1, shape.layers, shape.hidden
    stack = (shape.experts + 1) * shape.expert_hidden

    def normal(scale, *size):
        return torch.randn(*size, generator=g) * scale

    def matrix(*size):
        return normal(0.7 * size[-1] ** -0.5, *size)
    weights = dict(
        embed=normal(0.5, 1, shape.vocab, d), head=normal(0.01, 1, shape.vocab, d), norm=torch.ones(1, d),
        draft_embed_norm=torch.ones(1, d), draft_hidden_norm=torch.ones(1, d), draft_norm=torch.ones(1, d),
        draft_join=matrix(1, d, 2 * d),
        norm_in=torch.ones(every, d), norm_post=torch.ones(every, d), q_norm=torch.ones(every, shape.query_rank),
        kv_norm=torch.ones(every, shape.latent), q_a=matrix(every, shape.query_rank, d),
        q_b=matrix(every, shape.heads * shape.key, shape.query_rank),
        kv_a=matrix(every, shape.latent + shape.rope, d),
        kv_b=matrix(every, shape.heads * (shape.nope + shape.value), shape.latent),
        out=torch.zeros(every, d, shape.heads * shape.value),
        index_q=matrix(every, shape.index_heads * shape.index_dim, shape.query_rank),
        index_k=matrix(every, shape.index_dim, d),
        index_norm=torch.ones(every, shape.index_dim), index_norm_bias=torch.zeros(every, shape.index_dim),
        index_head=matrix(every, shape.index_heads, d),
        dense_gate=matrix(1, shape.dense_hidden, d), dense_up=matrix(1, shape.dense_hidden, d),
        dense_down=torch.zeros(1, d, shape.dense_hidden),
        router=matrix(experts, shape.experts, d) * 0.3, expert_gate=matrix(experts, stack, d),
        expert_up=matrix(experts, stack, d),
        expert_down=torch.zeros(experts, d, stack))
    return {n: w.to(device) for n, w in weights.items()}
