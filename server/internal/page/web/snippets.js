import { address } from "./api.js";

// Requests as complete programs, to be pasted into a shell or saved as a file.

const path = "v1/chat/completions";

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(body, withKey) {
  const auth = withKey ? ' \\\n  -H "Authorization: Bearer $SPARROW_KEY"' : "";
  return `curl ${shell(address(path))} \\\n  -H 'Content-Type: application/json'${auth} \\\n  -d ${shell(
    JSON.stringify(body, null, 2),
  )}\n`;
}

// literal returns a value as a Python literal.
function literal(v, indent = "") {
  const inner = indent + "    ";
  if (v === null || v === undefined) return "None";
  if (v === true) return "True";
  if (v === false) return "False";
  if (Array.isArray(v)) {
    return v.length ? `[\n${v.map((x) => inner + literal(x, inner)).join(",\n")},\n${indent}]` : "[]";
  }
  if (typeof v === "object") {
    const members = Object.entries(v).map(([k, x]) => `${inner}${JSON.stringify(k)}: ${literal(x, inner)}`);
    return members.length ? `{\n${members.join(",\n")},\n${indent}}` : "{}";
  }
  return JSON.stringify(v);
}

// Parameters of OpenAI's Python client; other fields must be in extra_body.
const known = ["model", "messages", "temperature", "top_p", "max_tokens", "seed", "stop", "tools"];

export function python(body, withKey) {
  const named = Object.entries(body).filter(([k]) => known.includes(k));
  const extra = Object.fromEntries(Object.entries(body).filter(([k]) => !known.includes(k) && !k.startsWith("stream")));
  const args = named.map(([k, v]) => `    ${k}=${literal(v, "    ")},\n`).join("");
  const more = Object.keys(extra).length ? `    extra_body=${literal(extra, "    ")},\n` : "";
  return `${withKey ? "import os\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(address("v1"))}, api_key=${withKey ? 'os.environ["SPARROW_KEY"]' : '"none"'})
answer = client.chat.completions.create(
${args}${more}    stream=True,
)
for chunk in answer:
    if not chunk.choices:
        continue
    delta = chunk.choices[0].delta
    print(delta.content or "", end="", flush=True)
    for call in delta.tool_calls or []:
        if call.function.name:
            print(call.function.name, end=" ")
        print(call.function.arguments or "", end="", flush=True)
print()
`;
}

export function go(body, withKey) {
  const { stream, stream_options, ...rest } = body;
  const auth = withKey ? '\treq.Header.Set("Authorization", "Bearer "+os.Getenv("SPARROW_KEY"))\n' : "";
  const quoted = JSON.stringify(JSON.stringify(rest).toWellFormed());
  return `package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"${withKey ? '\n\t"os"' : ""}
	"strings"
)

func main() {
	body := ${quoted}
	req, err := http.NewRequest(http.MethodPost, ${JSON.stringify(address(path))}, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
${auth}	res, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s", res.Status, text)
	}
	var answer struct {
		Choices []struct {
			Message struct {
				Content   string
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} \`json:"tool_calls"\`
			}
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
	for _, call := range answer.Choices[0].Message.ToolCalls {
		fmt.Println(call.Function.Name, call.Function.Arguments)
	}
}
`;
}
