"""Programs that measure servers: guidellm for load, lm-eval for answers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

from harness import ANSWER, KEY, MODEL, QUESTION, URL, V1, case, run, want

BIN = pathlib.Path(sys.executable).parent
TOKENIZER = sys.argv[3]  # a folder with the tokenizer of the model inside the binary
ENV = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": KEY}


def program(folder, name, *args, **env):
    """Runs a program of this environment and fails with the end of what it printed."""
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


# One question of a task of our own: the tasks of the suite fetch their data from a hub.
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


# Multiple choice: each choice is scored behind its question, and the likeliest is the answer.
CHOICES = """
task: doors
dataset_path: json
dataset_kwargs: {data_files: {test: doors.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{label}}"
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
DOORS = [("The opposite of hot is", ["cold", "seven", "a red door"], 0),
         ("Two and two are", ["five birds", "four", "the sea"], 1),
         ("The sky is", ["seven", "blue", "under the table of the house"], 1)]


def post(path, body):
    """The server's own answer to a request."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
    ask = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(ask) as answer:
        return json.load(answer)


def encode(text):
    return post("/tokenize", {"model": MODEL, "prompt": text, "add_special_tokens": False})["tokens"]


@case("lm-eval", "local-completions multiple_choice")
def _():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "doors.yaml").write_text(CHOICES)
        with open(pathlib.Path(folder, "doors.jsonl"), "w") as data:
            for question, choices, label in DOORS:
                data.write(json.dumps({"question": question, "choices": choices, "label": label}) + "\n")
        args = (f"model={MODEL},base_url={V1}/completions,num_concurrent=2,max_retries=1,"
                f"tokenizer={TOKENIZER},tokenizer_backend=huggingface")
        program(folder, "lm_eval", "run", "--model", "local-completions", "--model_args", args, "--tasks", "doors",
                "--include_path", folder, "--output_path", "out", "--log_samples")
        samples = next(pathlib.Path(folder, "out").rglob("samples_doors_*.jsonl")).read_text().splitlines()
        want(len(samples) == len(DOORS), samples)
        for line in map(json.loads, samples):
            doc = line["doc"]
            prompt = encode(doc["question"])
            given = [encode(doc["question"] + " " + choice)[len(prompt):] for choice in doc["choices"]]
            own = post("/v1/score", {"model": MODEL, "prompt": prompt, "continuations": given})["data"]
            theirs = [(float(p), greedy == "True") for p, greedy in line["filtered_resps"]]
            want(all(abs(p - x["logprob"]) < 1e-9 and greedy == x["greedy"] for (p, greedy), x in zip(theirs, own)),
                 theirs, own)
            best = max(range(len(own)), key=lambda i: own[i]["logprob"])
            want(line["acc"] == float(best == doc["label"]), line["acc"], best, doc)


if __name__ == "__main__":
    run()
