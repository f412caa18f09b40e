"""Requests that one of the offered functions answers, with JSON arguments under the parameter names of the offer."""
import json

from .documents import sentence
from .task import Task
from .words import ADJECTIVES, ANIMALS, CITIES, COLORS, FRUITS, GOODS, LANGUAGES, NAMES, NOUNS, ROOMS

# name: (description, {argument: JSON type}, requests)
TOOLS = {
    "get_weather": ("Get the weather of a city.", dict(city="string"),
                    ["What is the weather in {city}?", "How is the weather in {city} today?", "Tell me the weather "
                    "for {city}."]),
    "set_alarm": ("Set an alarm.", dict(hour="integer", minute="integer"),
                  ["Set an alarm for {hour}:{minute}.", "Wake me up at {hour}:{minute}.",
                  "I need an alarm at {hour}:{minute}."]),
    "send_message": ("Send a message to a person.", dict(to="string", text="string"),
                     ["Send {to} the message: {text}", "Tell {to} this: {text}", "Write to {to}: {text}"]),
    "calculator": ("Compute an expression.", dict(expression="string"),
                   ["Calculate {expression}.", "Use the calculator for {expression}.", "Compute {expression} for me."]),
    "book_table": ("Book a table in a restaurant.", dict(city="string", people="integer"),
                   ["Book a table for {people} people in {city}.", "I want a table in {city} for {people} people."]),
    "translate": ("Translate a word.", dict(word="string", language="string"),
    ["Translate {word} to {language}.", "What is {word} in {language}?"]),
    "play_song": ("Play a song.", dict(title="string"),
    ["Play the song {title}.", "I want to hear {title}.", "Put on {title}."]),
    "get_price": ("Get the price of an item.", dict(item="string"),
                  ["What does a {item} cost?", "What is the price of a {item}?", "Look up the price of a {item}."]),
    "find_flight": ("Find a flight between two cities.", dict(origin="string", destination="string"),
                    ["Find a flight from {origin} to {destination}.", "I want to fly from {origin} to {destination}.",
                     "Which flights go from {origin} to {destination}?"]),
    "add_note": ("Save a note.", dict(text="string"),
    ["Save this note: {text}", "Add a note: {text}", "Write down: {text}"]),
    "get_user": ("Look up a user by id.", dict(user_id="integer"),
                 ["Look up user {user_id}.", "Show me the user with id {user_id}.", "Who is user {user_id}?"]),
    "set_light": ("Set the color of the light.", dict(room="string", color="string"),
                  ["Make the light in the {room} {color}.", "Set the {room} light to {color}."]),
}

NO_TOOL = "Sorry, I have no tool for that."

# Other names that an offer may use for an argument.
_SYNONYMS = dict(
    city=["city", "location", "place"], to=["to", "recipient", "name"], text=["text", "content", "body"],
    item=["item", "product"],
    title=["title", "song"], user_id=["user_id", "id"])


def offer(r, name, plain=None):
    """Returns a function as a request describes it, and the argument for each offered parameter, in the order of the
    parameters.

    Half of the offers have the plain form. The others have the form that clients use: parameters in any
    order, keys sorted, with descriptions, nothing required.
    """
    description, arguments, _ = TOOLS[name]
    order = list(arguments)
    if plain is None:
        plain = r.random() < 0.5
    if not plain:
        r.shuffle(order)
    behind = {r.choice(_SYNONYMS.get(a, [a])): a for a in order}
    properties = {p: {"type": arguments[a]} for p, a in behind.items()}
    parameters = dict(type="object", properties=properties, required=list(properties))
    if not plain:
        if r.random() < 0.3:
            for p in properties:
                properties[p]["description"] = f"The {p.replace('_', ' ')}."
        if r.random() < 0.3:
            del parameters["required"]
        if r.random() < 0.3:
            parameters["additionalProperties"] = False
        if r.random() < 0.6:
            parameters = json.loads(json.dumps(parameters, sort_keys=True))
            behind = {p: behind[p] for p in parameters["properties"]}
    return dict(name=name, description=description, parameters=parameters), behind


def request(r, spec, behind):
    """Returns a task that calls an offered function. The parameters of the call are in the order of the offer."""
    name = spec["name"]
    values = _values(r)
    named = json.dumps({p: values[a] for p, a in behind.items()})
    out = r.choice([str(r.randint(2, 500)), r.choice(COLORS + FRUITS), "done", "ok", r.choice(NAMES)])
    return Task("tool", r.choice(TOOLS[name][2]).format(**values), think=f"I call {name}.", final=named,
        call=(name, named),
                result=json.dumps({"result": out}), reply=f"The result is {out}.")


def forced(r, task, spec, behind):
    """Returns a required call to which the question gives no arguments; they get empty values."""
    empty = {"string": "unknown", "integer": 0}
    named = json.dumps({p: empty[TOOLS[spec["name"]][1][a]] for p, a in behind.items()})
    return Task("tool", task.user, think="", final=named, call=(spec["name"], named))


def unoffered(r, offered=()):
    """Returns a request that none of the offered functions answers."""
    name = r.choice([n for n in TOOLS if n not in offered])
    return Task("talk", r.choice(TOOLS[name][2]).format(**_values(r)), think="I have no tool for that.", answer=NO_TOOL)


def _values(r):
    here, there = r.sample(CITIES, 2)
    return dict(
        city=here, origin=here, destination=there, hour=r.randint(1, 23), minute=r.randint(10, 59), to=r.choice(NAMES),
        text=" ".join(sentence(r).rstrip(".").split()[:r.randint(3, 6)]),
        expression=f"{r.randint(2, 99)} {r.choice('+-*')} {r.randint(2, 99)}", people=r.randint(2, 12),
        word=r.choice(FRUITS + ANIMALS),
        language=r.choice(LANGUAGES), title=f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}", item=r.choice(GOODS)[0],
        user_id=r.randint(100, 9999), room=r.choice(ROOMS), color=r.choice(COLORS))


def offers(r, plain=None):
    """Returns one to four functions: (specification, arguments for its parameters) of each."""
    return [offer(r, name, plain) for name in r.sample(list(TOOLS), r.randint(1, 4))]


def tool_task(r, plain=None):
    """Returns a request with offered functions, one of which answers it."""
    some = offers(r, plain)
    task = request(r, *r.choice(some))
    task.tools = tuple(spec for spec, _ in some)
    return task


def describe(specs):
    """Returns the text with which the chat template offers functions."""
    return "\n\n## Tools\nYou have access to the following tools:\n" + "".join(
        f"\n### {s['name']}\nDescription: {s['description']}\n\nParameters: {json.dumps(s['parameters'])}\n"
        for s in specs)
