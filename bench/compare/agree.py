"""Compare greedy tokens of llama-server and sparrow serve after the same prompts, both with the same GGUF file.

    python3 agree.py FILE.gguf [ITEMS]

Prompts are the first ITEMS items (default 15) with one message of every task in internal/eval/tasks, rendered as
chats; both servers continue the token ids of a prompt by at most 48 tokens. The script does not send chats, because
their answers differ for other reasons: sparrow begins no tool call in a chat without tools, and the texts of control
tokens and of incomplete characters differ. If tokens differ, the script prints the log probabilities of both servers
at the first difference; the last line states how much log probabilities differ before that. SPARROW and LLAMA_SERVER
name the two programs if they are not on the path; LLAMA_SERVER may have arguments, SPARROW_ARGS are the arguments of
sparrow serve. LLAMA_FILE is the path of the file for llama-server. LLAMA_OTHER is a second llama-server, with other
arguments or another back end; it is compared with the first in place of sparrow, which shows how much llama.cpp
differs from itself. Exit status 1 means that an answer differs.
"""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.request

TASKS = pathlib.Path(__file__).resolve().parents[2] / "internal" / "eval" / "tasks"
PORTS = {"llama": 18080, "sparrow": 18081, "other": 18082}


def prompts(most):
    for name in sorted(glob.glob(str(TASKS / "*.jsonl"))):
        with open(name) as lines:
            items = [json.loads(line) for line in lines]
        for item in [i for i in items if len(i["messages"]) == 1 and "tools" not in i][:most]:
            yield item["messages"]


def post(name, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORTS[name]}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def llama(ids, name="llama"):
    """Returns the greedy tokens, and for each position the most probable tokens with their log probabilities."""
    body = {"prompt": ids, "n_predict": 48, "temperature": 0, "n_probs": 3, "return_tokens": True,
            "cache_prompt": False}
    reply = post(name, "/completion", body)
    # Tokens that end inside a character have no entry: the ids of the entries show which tokens have one.
    tokens, entries = reply["tokens"], iter(reply["completion_probabilities"])
    top, entry = [], next(entries, None)
    for token in tokens:
        if entry is not None and entry["id"] == token:
            top.append([(t["id"], t["logprob"]) for t in entry["top_logprobs"]])
            entry = next(entries, None)
        else:
            top.append([])
    return tokens, top


def sparrow(ids, model):
    body = {"model": model, "prompt": ids, "max_tokens": 48, "temperature": 0, "logprobs": 3,
            "return_tokens_as_token_ids": True}
    choice = post("sparrow", "/v1/completions", body)["choices"][0]["logprobs"]

    def number(token):
        return int(token.removeprefix("token_id:"))

    top = [[(number(t), v) for t, v in p.items()] for p in choice["top_logprobs"]]
    return [number(t) for t in choice["tokens"]], top


def difference(theirs, ours):
    """Returns the first position at which tokens differ, or None. The lengths of the lists may differ by the
    end-of-sequence token, which only one server returns."""
    for i, (a, b) in enumerate(zip(theirs, ours)):
        if a != b:
            return i
    return None if abs(len(theirs) - len(ours)) <= 1 else min(len(theirs), len(ours))


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


INSTALL = {
    "llama": "apt-get install llama.cpp-tools (Debian sid), or let LLAMA_SERVER name llama-server",
    "other": "let LLAMA_OTHER name a llama-server",
    "sparrow": "go build -o bin/sparrow ./cmd/sparrow, and SPARROW=bin/sparrow",
}


def check(gguf, commands):
    """Exits with one line that names a missing file or program, before a server is started."""
    if not os.path.isfile(gguf):
        sys.exit(f"agree.py: {gguf}: the file does not exist; 'sparrow quantize SRC FILE.gguf' writes one")
    for name, command in commands.items():
        if not command or shutil.which(command[0]) is None:
            sys.exit(f"agree.py: {command[0] if command else name}: the program was not found; {INSTALL[name]}")


def main():
    if len(sys.argv) not in (2, 3) or len(sys.argv) == 3 and not sys.argv[2].isdigit():
        sys.exit(__doc__)
    gguf, most = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 15
    theirs_at = ["-m", os.environ.get("LLAMA_FILE", gguf), "--no-repack", "-t", "1", "--port"]
    commands = {"llama": os.environ.get("LLAMA_SERVER", "llama-server").split() + theirs_at + [str(PORTS["llama"])]}
    second = "other" if "LLAMA_OTHER" in os.environ else "sparrow"
    if second == "other":
        commands["other"] = os.environ["LLAMA_OTHER"].split() + theirs_at + [str(PORTS["other"])]
    else:
        commands["sparrow"] = (os.environ.get("SPARROW", "sparrow").split()
                               + ["serve", "--model", gguf, "--kernels", "cpu", "--port", str(PORTS["sparrow"])]
                               + os.environ.get("SPARROW_ARGS", "").split())
    check(gguf, commands)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = {}
    try:
        for name, command in commands.items():
            running[name] = subprocess.Popen(command, **quiet)
        for name, process in running.items():
            ready(PORTS[name], process)
        with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[second]}/v1/models", timeout=60) as reply:
            model = json.load(reply)["data"][0]["id"]
        total = same = tokens = 0
        apart = []  # differences of the most probable token's log probability, before the first differing token
        for messages in prompts(most):
            if second == "other":
                text = post("llama", "/apply-template", {"messages": messages})["prompt"]
                ids = post("llama", "/tokenize", {"content": text, "parse_special": True})["tokens"]
                other = llama(ids, "other")
            else:
                ids = post("sparrow", "/tokenize", {"model": model, "messages": messages})["tokens"]
                other = sparrow(ids, model)
            (theirs, their_top), (ours, our_top) = llama(ids), other
            at = difference(theirs, ours)
            total += 1
            same += at is None
            tokens += len(ours) if at is None else at
            apart += [abs(a[0][1] - b[0][1]) for a, b in zip(their_top[:at], our_top[:at])
                      if a and b and a[0][0] == b[0][0]]
            if at is not None:
                print(f"prompt of {len(ids)} tokens, {messages[0]['content']!r}: token {at} differs\n"
                      f"  llama   {their_top[at:at + 1]}\n  {second:7} {our_top[at:at + 1]}")
        print(f"{gguf}: {same} of {total} answers are equal, {tokens} tokens up to the first difference; log "
              f"probabilities of the most probable token differ by {sum(apart) / len(apart):.5f} on average, "
              f"{max(apart):.5f} at most")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    sys.exit(same != total)


if __name__ == "__main__":
    main()
