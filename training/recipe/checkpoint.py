"""Export and import of checkpoints with DeepSeek-V3.2's names and types: FP8 blocks with scales, float32 for the
router's bias and the indexer's norm, otherwise bfloat16. config.json, the tokenizer and the chat template are those of
the built-in model."""
import json
import shutil

from safetensors.torch import load_file, save_file

from .blocks import round_weight, widen
from .model import ROUNDED
from .shape import SHIPPED

BESIDE = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]

_EVERY_LAYER = dict(
    norm_in="input_layernorm", norm_post="post_attention_layernorm", q_a="self_attn.q_a_proj",
    q_norm="self_attn.q_a_layernorm",
    q_b="self_attn.q_b_proj", kv_a="self_attn.kv_a_proj_with_mqa", kv_norm="self_attn.kv_a_layernorm",
    kv_b="self_attn.kv_b_proj",
    out="self_attn.o_proj", index_q="self_attn.indexer.wq_b", index_k="self_attn.indexer.wk",
    index_norm="self_attn.indexer.k_norm",
    index_head="self_attn.indexer.weights_proj")
_DENSE = dict(dense_gate="mlp.gate_proj", dense_up="mlp.up_proj", dense_down="mlp.down_proj")
_DRAFT = dict(draft_embed_norm="enorm", draft_hidden_norm="hnorm", draft_join="eh_proj", draft_norm="shared_head.norm",
              head="shared_head.head", embed="embed_tokens")
_ALL = slice(None)


def names(shape):
    """Yields (name in the file, kind of weight, index in its stack, rows, columns) of every weight; experts are parts
    of stacked matrices."""
    for kind, name in dict(embed="model.embed_tokens", norm="model.norm", head="lm_head").items():
        yield name + ".weight", kind, 0, _ALL, _ALL
    for i in range(shape.layers + 1):
        layer = f"model.layers.{i}."
        for kind, name in _EVERY_LAYER.items():
            yield f"{layer}{name}.weight", kind, i, _ALL, _ALL
        yield layer + "self_attn.indexer.k_norm.bias", "index_norm_bias", i, _ALL, _ALL
        if i == 0:
            for kind, name in _DENSE.items():
                yield f"{layer}{name}.weight", kind, 0, _ALL, _ALL
            continue
        yield layer + "mlp.gate.weight", "router", i - 1, _ALL, _ALL
        for e in range(shape.experts + 1):
            expert = layer + ("mlp.shared_experts." if e == shape.experts else f"mlp.experts.{e}.")
            part = slice(e * shape.expert_hidden, (e + 1) * shape.expert_hidden)
            yield expert + "gate_proj.weight", "expert_gate", i - 1, part, _ALL
            yield expert + "up_proj.weight", "expert_up", i - 1, part, _ALL
            yield expert + "down_proj.weight", "expert_down", i - 1, _ALL, part
    for kind, name in _DRAFT.items():
        yield f"model.layers.{shape.layers}.{name}.weight", kind, 0, _ALL, _ALL


def _bias_name(i):
    return f"model.layers.{i}.mlp.gate.e_score_correction_bias"


def tensors(model, widened):
    """Returns all tensors of the file; widened converts FP8 weights to bfloat16 with equal values, without scales."""
    out = {_bias_name(i + 1): b - b.min() for i, b in enumerate(model.bias)}
    for name, kind, i, rows, columns in names(model.shape):
        w = model.master[kind][i]
        w = w[rows] if w.dim() == 1 else w[rows, columns]
        if kind not in ROUNDED:
            out[name] = w.bfloat16().float() if kind.startswith("index_norm") else w.bfloat16()
            continue
        values, scales, wide = round_weight(w)
        if widened:
            out[name] = wide.bfloat16()
        else:
            out[name], out[name + "_scale_inv"] = values, scales
    return {n: t.detach().cpu().contiguous().clone() for n, t in out.items()}


def export(model, folder, widened=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name in BESIDE:
        shutil.copyfile(SHIPPED / name, folder / name)
    if widened:
        config = json.loads((folder / "config.json").read_text())
        del config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(config, indent=2))
    new = folder / "model.new"
    save_file(tensors(model, widened), new, metadata={"format": "pt"})
    new.replace(folder / "model.safetensors")


def load(model, folder):
    """Sets the master weights to those of a checkpoint."""
    stored = load_file(folder / "model.safetensors", device=str(model.device))
    for i in range(model.shape.layers):
        model.bias[i] = stored[_bias_name(i + 1)]
    for name, kind, i, rows, columns in names(model.shape):
        scales = stored.get(name + "_scale_inv")
        w = stored[name].float() if scales is None else widen(stored[name], scales)
        if w.dim() == 1:
            model.master[kind][i] = w
        else:
            model.master[kind][i][rows, columns] = w
