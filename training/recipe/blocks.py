"""Rounding to FP8 e4m3 with power-of-two scales: weights in blocks of 128 x 128, activations in groups of 128."""
import torch
import torch.nn.functional as F

from .shape import BLOCK

LARGEST = 448.0  # largest e4m3 value


def _scale(largest, floor):
    return torch.exp2(torch.ceil(torch.log2(largest.clamp(min=floor) / LARGEST)))


@torch.no_grad()
def round_weight(w):
    """Returns (e4m3 values, scales [..., ceil(m/128), ceil(n/128)], values times scales) of weights [..., m, n]."""
    m, n = w.shape[-2:]
    # [..., rows, 128, columns, 128]
    p = F.pad(w, (0, -n % BLOCK, 0, -m % BLOCK)).unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    largest = p.abs().amax((-3, -1), keepdim=True)
    scale = torch.where(largest > 0, _scale(largest, 1e-30), torch.ones_like(largest))
    values = (p / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)

    def whole(t):
        return t.flatten(-2).flatten(-3, -2)[..., :m, :n]
    return whole(values), scale[..., 0, :, 0], whole(values.float() * scale)


def widen(values, scales):
    """Returns a matrix from its values and scales."""
    s = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return values.float() * s[:values.shape[0], :values.shape[1]]


def round_activation(x):
    """Rounds the last axis in groups of 128, like a server with FP8 activations and an FP8 cache."""
    y = x.float().unflatten(-1, (-1, BLOCK))
    scale = _scale(y.abs().amax(-1, keepdim=True), 1e-4)
    return ((y / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float() * scale).flatten(-2).to(x.dtype)
