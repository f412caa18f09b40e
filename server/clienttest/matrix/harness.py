"""Shared by the suites: cases, whose results are one line of JSON each, and questions for the built-in model."""

import inspect
import json
import sys
import time
import traceback

from pydantic import BaseModel

URL, MODEL = sys.argv[1:3]
V1 = URL + "/v1"
KEY = "unused"

# A question that the built-in model can answer, and words of the answer.
QUESTION, ANSWER = "The price of a lamp is 2 dollars. Bella takes 3 lamps. How many dollars does Bella pay?", "6"
WEATHER = "What is the weather in Paris?"
RESULT, SPOKEN = '{"result": "42"}', "42"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


class Item(BaseModel):
    """An answer with a shape."""

    name: str
    count: int


# Results go to the original standard output; output of clients goes to standard error.
_results, sys.stdout = sys.stdout, sys.stderr
_cases = []


def case(client, feature):
    """Registers a case; run() runs them in order."""

    def register(function):
        _cases.append((client, feature, function))
        return function

    return register


def run():
    import asyncio

    for client, feature, function in _cases:
        line, start = {"client": client, "feature": feature, "error": None}, time.monotonic()
        try:
            result = function()
            if inspect.isawaitable(result):
                asyncio.run(result)
        except BaseException as error:  # a failed case must not stop the others
            if isinstance(error, KeyboardInterrupt):
                raise
            line["error"] = "".join(traceback.format_exception_only(error)).strip()
            traceback.print_exc()
        line["seconds"] = round(time.monotonic() - start, 2)
        print(json.dumps(line), file=_results, flush=True)


def want(condition, *what):
    """Raises an error with the given values unless the condition is true."""
    if not condition:
        raise AssertionError(repr(what))


def check_json(text):
    got = json.loads(text)
    want(set(got) == {"name", "count"} and isinstance(got["count"], int), text)
