"""The model's dimensions, read from the config.json of the built-in model, so that the recipe trains this model."""
import json
import math
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "builtin"  # config.json, generation_config.json, tokenizer.json, tokenizer_config.json
BLOCK = 128                 # rows and columns that share one FP8 scale


@dataclass(frozen=True)
class Shape:
    vocab: int
    hidden: int
    layers: int          # without the draft layer, whose index is `layers`
    heads: int
    nope: int            # query and key dimensions without rotary embedding
    rope: int            # query and key dimensions with rotary embedding
    value: int
    query_rank: int
    latent: int          # rank of keys and values
    index_heads: int
    index_dim: int
    top: int             # maximum positions that the indexer selects
    experts: int         # routed experts; there is also one shared expert
    chosen: int
    groups: int
    kept_groups: int
    expert_hidden: int
    dense_hidden: int    # feed-forward of layer 0
    route_scale: float
    positions: int
    eps: float
    theta: float
    yarn: dict

    @property
    def key(self):
        return self.nope + self.rope

    @property
    def softmax_scale(self):
        """key^-1/2 times the square of YaRN's magnitude correction."""
        m = 0.1 * self.yarn["mscale_all_dim"] * math.log(self.yarn["factor"]) + 1
        return self.key ** -0.5 * m * m


def read(folder=SHIPPED):
    c = json.loads((Path(folder) / "config.json").read_text())
    if c["model_type"] != "deepseek_v32" or c["first_k_dense_replace"] != 1 or c["n_shared_experts"] != 1 or c[
        "num_nextn_predict_layers"] != 1:
        raise ValueError(f"{folder}/config.json: the recipe trains deepseek_v32 with one dense layer, one shared "
            f"expert and one draft layer")
    return Shape(
        vocab=c["vocab_size"], hidden=c["hidden_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
        nope=c["qk_nope_head_dim"], rope=c["qk_rope_head_dim"], value=c["v_head_dim"], query_rank=c["q_lora_rank"],
        latent=c["kv_lora_rank"],
        index_heads=c["index_n_heads"], index_dim=c["index_head_dim"], top=c["index_topk"],
        experts=c["n_routed_experts"],
        chosen=c["num_experts_per_tok"], groups=c["n_group"], kept_groups=c["topk_group"],
        expert_hidden=c["moe_intermediate_size"],
        dense_hidden=c["intermediate_size"], route_scale=c["routed_scaling_factor"],
        positions=c["max_position_embeddings"],
        eps=c["rms_norm_eps"], theta=c["rope_theta"], yarn=c["rope_scaling"])
