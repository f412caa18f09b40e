"""Compare greedy answers of llama-server and sparrow serve to the same prompts, both with the same GGUF file.

    python3 agree.py FILE.gguf [ITEMS]

Prompts are the first ITEMS (15) of every task of eval/tasks that have one message, asked as chats; answers have at
most 48 tokens. SPARROW and LLAMA_SERVER name the two programs when they are not on the path; LLAMA_SERVER may have
arguments, SPARROW_ARGS are those of sparrow serve. LLAMA_FILE is the file's path as llama-server sees it. Exit status
1 means that an answer differs.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

TASKS = pathlib.Path(__file__).resolve().parents[2] / "eval" / "tasks"
PORTS = {"llama": 18080, "sparrow": 18081}


def prompts(most):
    for name in sorted(glob.glob(str(TASKS / "*.jsonl"))):
        with open(name) as lines:
            items = [json.loads(line) for line in lines]
        for item in [i for i in items if len(i["messages"]) == 1 and "tools" not in i][:most]:
            yield item["messages"]


def ask(port, messages):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as reply:
        name = json.load(reply)["data"][0]["id"]
    body = {"model": name, "messages": messages, "temperature": 0, "max_tokens": 48}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def ready(port, process):
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            return
        except OSError:
            if process.poll() is not None:
                sys.exit(f"a server ended with status {process.returncode} before it was ready")
            time.sleep(0.5)
    sys.exit("a server was not ready after five minutes")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    gguf, most = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 15
    commands = {
        "llama": os.environ.get("LLAMA_SERVER", "llama-server").split()
        + ["-m", os.environ.get("LLAMA_FILE", gguf), "--no-repack", "-t", "1", "--port", str(PORTS["llama"])],
        "sparrow": os.environ.get("SPARROW", "sparrow").split()
        + ["serve", "--model", gguf, "--kernels", "cpu", "--port", str(PORTS["sparrow"])]
        + os.environ.get("SPARROW_ARGS", "").split(),
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = {}
    try:
        for name, command in commands.items():
            running[name] = subprocess.Popen(command, **quiet)
        for name, process in running.items():
            ready(PORTS[name], process)
        total = same = 0
        for messages in prompts(most):
            theirs, ours = (ask(PORTS[name], messages) for name in ("llama", "sparrow"))
            total += 1
            same += theirs == ours
            if theirs != ours:
                print(f"prompt  {messages[0]['content']!r}\nllama   {theirs!r}\nsparrow {ours!r}")
        print(f"{gguf}: {same} of {total} answers are equal")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    sys.exit(same != total)


if __name__ == "__main__":
    main()
