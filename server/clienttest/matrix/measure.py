"""Tests programs that measure servers: guidellm (load) and lm-eval (answers)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

from harness import ANSWER, KEY, MODEL, QUESTION, URL, V1, case, run, want

BIN = pathlib.Path(sys.executable).parent
# Folder with the built-in model's tokenizer, path of the program, and root of the source tree.
TOKENIZER, SPARROW, ROOT = sys.argv[3:6]
ENV = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": KEY}


def program(folder, name, *args, **env):
    """Runs a program of this virtual environment. If it fails, the error contains the end of its output."""
    done = subprocess.run([BIN / name, *args], cwd=folder, env=ENV | env, capture_output=True, text=True, timeout=200)
    want(done.returncode == 0, name, done.returncode, done.stdout[-1500:], done.stderr[-1500:])


for path in ("text_completions", "chat_completions"):

    @case("guidellm", path.replace("_", " "))
    def _(path=path):
        with tempfile.TemporaryDirectory() as folder:
            program(folder, "guidellm", "benchmark", "run", "--target", URL, "--model", MODEL, "--processor", TOKENIZER,
                    "--data", '{"prompt_tokens": 48, "output_tokens": 12}', "--rate-type", "concurrent", "--rate", "2",
                    "--max-requests", "6", "--output-path", "report.json", "--disable-progress",
                    GUIDELLM__PREFERRED_ROUTE=path)
            report = json.loads(pathlib.Path(folder, "report.json").read_text())
            requests = report["benchmarks"][0]["requests"]
            want(len(requests["successful"]) == 6 and not requests["errored"], requests)
            want(all(r["output_tokens"] == 12 for r in requests["successful"]), requests["successful"])


# A task with one question, because lm-eval's own tasks download their data.
TASK = """
task: lamps
dataset_path: json
dataset_kwargs: {data_files: {test: lamps.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 60, temperature: 0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true,
               regexes_to_ignore: ["^.*?(?=6)", "(?<=6).*$"]}]
metadata: {version: 1}
"""

for kind, path in (("local-completions", "/completions"), ("local-chat-completions", "/chat/completions")):

    @case("lm-eval", kind + " generate_until")
    def _(kind=kind, path=path):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "lamps.yaml").write_text(TASK)
            with open(pathlib.Path(folder, "lamps.jsonl"), "w") as data:
                for _row in range(3):
                    data.write(json.dumps({"question": QUESTION, "answer": ANSWER}) + "\n")
            args = f"model={MODEL},base_url={V1}{path},num_concurrent=2,max_retries=1,tokenized_requests=False"
            if kind == "local-completions":
                args += f",tokenizer={TOKENIZER},tokenizer_backend=huggingface"
            chat = ["--apply_chat_template"] if "chat" in kind else []
            program(folder, "lm_eval", "run", "--model", kind, "--model_args", args, "--tasks", "lamps",
                    "--include_path", folder, "--output_path", "out", "--log_samples", *chat)
            samples = next(pathlib.Path(folder, "out").rglob("samples_lamps_*.jsonl")).read_text().splitlines()
            want(len(samples) == 3, samples)
            for line in samples:
                answers = json.loads(line)["resps"][0]
                want(answers and answers[0], line)
                if chat:
                    want(ANSWER in answers[0], line)


# Multiple choice: each choice is scored after its question, and the most likely one is the answer.
CHOICES = """
task: choice
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_target: "{{label}}"
doc_to_choice: "{{choices}}"
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true},
              {metric: acc_norm, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
ITEMS = pathlib.Path(ROOT) / "internal" / "eval" / "testdata" / "choice.jsonl"


def post(path, body):
    """Sends a request without a client and returns the response."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
    ask = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(ask) as answer:
        return json.load(answer)


@case("lm-eval", "local-completions multiple_choice, as sparrow eval and /v1/score")
def _():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "choice.yaml").write_text(CHOICES)
        pathlib.Path(folder, "choice.jsonl").write_bytes(ITEMS.read_bytes())
        args = (f"model={MODEL},base_url={V1}/completions,num_concurrent=4,max_retries=1,"
                f"tokenizer={TOKENIZER},tokenizer_backend=huggingface")
        program(folder, "lm_eval", "run", "--model", "local-completions", "--model_args", args, "--tasks", "choice",
                "--include_path", folder, "--output_path", "out", "--log_samples")
        samples = next(pathlib.Path(folder, "out").rglob("samples_choice_*.jsonl")).read_text().splitlines()
    samples = [json.loads(line) for line in samples]
    want(len(samples) == len(ITEMS.read_text().splitlines()), len(samples))
    for sample in samples[::7]:
        doc = sample["doc"]
        own = post("/v1/score", {"model": MODEL, "prompt": doc["prompt"], "continuations": doc["choices"],
                                 "add_special_tokens": False})["data"]
        theirs = [(float(p), greedy == "True") for p, greedy in sample["filtered_resps"]]
        want(all(abs(p - x["logprob"]) < 1e-9 and greedy == x["greedy"] for (p, greedy), x in zip(theirs, own)),
             theirs, own)
    exact, final = (sum(s[name] for s in samples) for name in ("acc", "acc_norm"))
    for place in (["--url", URL, "--key", KEY], []):
        done = subprocess.run([SPARROW, "eval", "--json", *place, ITEMS], capture_output=True, text=True, timeout=200)
        want(done.returncode == 0, done.stdout[-1500:], done.stderr[-1500:])
        total = json.loads(done.stdout)["total"]
        want((total["exact"], total["final"]) == (exact, final), total, exact, final)


if __name__ == "__main__":
    run()
