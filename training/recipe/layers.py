"""The operations of a layer as pure functions, so that each half can be compiled. N is rows times length, B rows, S
length.

round_inputs rounds the inputs of FP8 matrices, the latent and the indexer's vectors to FP8; for evaluation only.
"""
import math

import torch
import torch.nn.functional as F

from .blocks import round_activation


def rope_tables(shape, device):
    """Returns cos and sin [positions, rope/2] of the frequencies of YaRN."""
    half, y = shape.rope // 2, shape.yarn
    i = torch.arange(half, dtype=torch.float64)
    frequency = shape.theta ** (-2 * i / shape.rope)

    def dimension(turns):  # dimension with the given number of turns over the original length
        return shape.rope * math.log(y["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (
            2 * math.log(shape.theta))
    low = max(math.floor(dimension(y["beta_fast"])), 0)
    high = min(math.ceil(dimension(y["beta_slow"])), shape.rope - 1)
    slow = ((i - low) / (high - low)).clamp(0, 1)
    frequency = (frequency * (1 - slow) + frequency / y["factor"] * slow).float().double()
    angle = torch.arange(shape.positions, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float().to(device), angle.sin().float().to(device)


def multiply(x, w, round_inputs):
    return (round_activation(x) if round_inputs else x) @ w.T


def rms(x, w, eps):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def _turn(a, b, cos, sin):
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def rope_pairs(x, cos, sin):
    """Rotates the pairs (2i, 2i+1). The result is de-interleaved, for queries and keys alike, so dot products are the
    same."""
    y = x.float()
    return _turn(y[..., 0::2], y[..., 1::2], cos, sin).to(x.dtype)


def rope_halves(x, cos, sin):
    """Rotates the pairs (i, i + rope/2) of the first dimensions and keeps the others, as in the indexer."""
    half = cos.shape[-1]
    y = x[..., :2 * half].float()
    return torch.cat([_turn(y[..., :half], y[..., half:], cos, sin).to(x.dtype), x[..., 2 * half:]], -1)


def project(shape, x, cos, sin, w, round_inputs=False):
    """Returns for x [N, hidden] the normalised input, the query latent, and q, k, v [N, heads, key]; v is padded to the
    width of k."""
    n, h = x.shape[0], shape.heads
    normed = rms(x, w["norm_in"], shape.eps)
    latent_q = rms(multiply(normed, w["q_a"], round_inputs), w["q_norm"], shape.eps)
    q = multiply(latent_q, w["q_b"], round_inputs).view(n, h, shape.key)
    down = multiply(normed, w["kv_a"], round_inputs)
    up = multiply(rms(down[:, :shape.latent], w["kv_norm"], shape.eps), w["kv_b"], round_inputs).view(n, h,
        shape.nope + shape.value)
    shared = rope_pairs(down[:, shape.latent:], cos, sin)
    q = torch.cat([q[..., :shape.nope], rope_pairs(q[..., shape.nope:], cos[:, None], sin[:, None])], -1)
    k = torch.cat([up[..., :shape.nope], shared[:, None].expand(n, h, shape.rope)], -1)
    return normed, latent_q, q, k, F.pad(up[..., shape.nope:], (0, shape.key - shape.value))


def index_vectors(shape, normed, latent_q, cos, sin, w, round_inputs=False):
    """Returns the indexer's queries [N, index_heads, index_dim], keys [N, index_dim] and head weights [N, index_heads],
    which include all scales."""
    q = multiply(latent_q, w["index_q"], round_inputs).view(-1, shape.index_heads, shape.index_dim)
    q = rope_halves(q, cos[:, None], sin[:, None])
    k = multiply(normed, w["index_k"], round_inputs).float()
    k = F.layer_norm(k, (shape.index_dim,), w["index_norm"].float(), w["index_norm_bias"].float(),
        shape.eps).to(normed.dtype)
    k = rope_halves(k, cos, sin)
    if round_inputs:
        q, k = round_activation(q), round_activation(k)
    return q, k, (normed.float() @ w["index_head"].float().T) * (shape.index_heads * shape.index_dim) ** -0.5


@torch.no_grad()
def select(q, k, weights, top):
    """Returns the additive mask [B, 1, S, S]: 0 at the top causal positions by index score, -inf elsewhere."""
    b, s = k.shape[:2]
    score = torch.zeros(b, s, s, device=k.device)
    for h in range(q.shape[2]):
        score.addcmul_(torch.relu_(q[:, :, h] @ k.transpose(1, 2)).float(), weights[:, :, h, None].float())
    causal = torch.ones(s, s, device=k.device, dtype=torch.bool).tril()
    score.masked_fill_(~causal, float("-inf"))
    chosen = torch.zeros(b, s, s, device=k.device, dtype=torch.bool).scatter_(-1,
        score.topk(top, -1, sorted=False).indices, True) & causal
    return torch.zeros(b, 1, s, s, device=k.device, dtype=q.dtype).masked_fill_(~chosen[:, None], float("-inf"))


def index_loss(q, k, weights, main_q, main_k, at, scale):
    """Returns the mean of KL(average attention of the heads || softmax of the index scores) over the query rows at
    [B, R], at all causal positions."""
    row, s = torch.arange(at.shape[0], device=at.device)[:, None], k.shape[1]
    future = torch.arange(s, device=at.device) > at[:, :, None]
    with torch.no_grad():
        logits = torch.einsum("brhd,bshd->bhrs", main_q[row, at], main_k).float().mul_(scale)
        target = logits.masked_fill_(future[:, None], float("-inf")).softmax(-1).mean(1)
        entropy = torch.special.xlogy(target, target).sum(-1)
    score = torch.relu(torch.einsum("brhd,bsd->bhrs", q[row, at], k))
    score = (score.float() * weights[row, at].transpose(1, 2)[..., None]).sum(1)
    log = score.masked_fill(future, float("-inf")).log_softmax(-1).masked_fill(future, 0.0)
    return (entropy - (target * log).sum(-1)).mean()


def largest(x, count):
    """Returns the mask of the count largest entries of the last axis; of equal entries, the first ones."""
    i = torch.arange(x.shape[-1], device=x.device)
    a, b = x[..., None, :], x[..., :, None]
    ahead = (a > b) | ((a == b) & (i[None, :] < i[:, None]))
    return ahead.sum(-1) < count


def routed(shape, x, attended, w, bias, round_inputs=False):
    """Returns x [N, hidden] after the second half of a layer with experts, and the tokens of each expert [experts].

    All experts run for all tokens, as one stacked matrix, and the router's weights are 0 for those not chosen: at this
    size this is faster than gathering. The shared expert is the last part of the stack, with weight 1.
    """
    n, groups = x.shape[0], shape.groups
    x = x + multiply(attended, w["out"], round_inputs)
    normed = rms(x, w["norm_post"], shape.eps)
    score = torch.sigmoid(normed.float() @ w["router"].float().T)
    biased = (score.detach() + bias).view(n, groups, -1)
    best_two = biased.topk(2, -1).values.sum(-1) if biased.shape[-1] > 2 else biased.sum(-1)
    biased = biased.masked_fill(~largest(best_two, shape.kept_groups)[:, :, None], float("-inf")).reshape(n, -1)
    chosen = largest(biased, shape.chosen)
    share = score * chosen
    share = share / (share.sum(-1, keepdim=True) + 1e-20) * shape.route_scale
    share = torch.cat([share, torch.ones_like(share[:, :1])], 1)
    y = F.silu(multiply(normed, w["expert_gate"], round_inputs).float()) * multiply(normed, w["expert_up"],
        round_inputs).float()
    y = (y.view(n, shape.experts + 1, shape.expert_hidden) * share[:, :, None]).flatten(1).to(x.dtype)
    return x + multiply(y, w["expert_down"], round_inputs), chosen.float().sum(0)


def plain(shape, x, attended, w, round_inputs=False):
    """Returns x [N, hidden] after the second half of the dense layer."""
    x = x + multiply(attended, w["out"], round_inputs)
    normed = rms(x, w["norm_post"], shape.eps)
    y = F.silu(multiply(normed, w["dense_gate"], round_inputs).float()) * multiply(normed, w["dense_up"],
        round_inputs).float()
    return x + multiply(y.to(x.dtype), w["dense_down"], round_inputs)
