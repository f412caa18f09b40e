"""Comparison with transformers: logits of the exported weights, and greedy outputs, which become the golden file of the
built-in model."""
import json

import torch
import torch.nn.functional as F
import transformers

from .data.task import END_ID, PAD_ID
from .model import Pass

CASES = dict(word2=3, word3=3, list=2, json=2, tool=3, talk=2, find_one_1024=2, find_one_2048=1, find_one_4096=1,
    find_hop_2048=1)


def check(model, suite, exported, widened, path):
    """Loads the checkpoint, widened to float32 with eager attention, and writes the golden file. Returns the largest
    logit difference of each task, and the number of outputs that equal the expected answers. The model stays in
    float32."""
    device = model.device
    torch.backends.cuda.matmul.allow_tf32 = False
    theirs = transformers.AutoModelForCausalLM.from_pretrained(widened, dtype=torch.float32,
        attn_implementation="eager").to(device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    model.set_dtype(torch.float32)
    model.refresh(True)
    difference, cases, expected = {}, [], 0
    with torch.no_grad():
        for task, count in CASES.items():
            for item in suite.get(task, [])[:count]:
                record, prompt = item.record, item.prompt
                text = tokenizer.apply_chat_template(record["messages"], tools=record.get("tools"), tokenize=False,
                    add_generation_prompt=True)
                if tokenizer(text, add_special_tokens=False)["input_ids"] != prompt:
                    raise ValueError(f"{task}: the chat template gives other tokens than training: {text[:200]!r}")
                x = torch.tensor([prompt], device=device)
                want = theirs(x).logits[0].float()
                padded = F.pad(x, (0, -len(prompt) % 8), value=PAD_ID)
                got = model.logits(model.forward(padded, padded, Pass(sparse=True))[0])[:len(prompt)]
                difference[task] = max(difference.get(task, 0.0), round(float((got - want).abs().max()), 6))
                output = theirs.generate(x, max_new_tokens=128, do_sample=False, eos_token_id=END_ID,
                    pad_token_id=PAD_ID)[0, len(prompt):].tolist()
                best = theirs(torch.tensor([prompt + output], device=device)).logits[0,
                    len(prompt) - 1:-1].float().topk(2, -1).values
                expected += output == item.answer
                cases.append(dict(
                    task=task, messages=record["messages"], tools=record.get("tools"), prompt_tokens=prompt,
                    output_tokens=output,
                    output_text=tokenizer.decode(output), expected=record["answer"],
                    min_margin=round(float((best[:, 0] - best[:, 1]).min()), 4)))
    golden = dict(source=f"transformers {transformers.__version__}, float32, eager attention, dequantised weights",
        decoding="greedy", cases=cases)
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=1))
    return dict(largest_logit_difference=difference, outputs_as_expected=f"{expected} of {len(cases)}")
