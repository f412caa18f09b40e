"""Small tasks on lists, and JSON from a sentence."""
import json

from .documents import sentence
from .task import Task
from .words import ANIMALS, CITIES, COLORS, FRUITS, GOODS, JOBS, NAMES

# Weights with which list tasks are drawn. Counting a word and descending order are the hardest to learn, so they are
# more frequent.
_WEIGHT = dict(ascending=2, descending=2, reverse=1, length=1, copy=1, largest=1, smallest=1, occurrences=3, end=1,
    array=1)


def list_task(r):
    kind = r.choices(list(_WEIGHT), list(_WEIGHT.values()))[0]
    size = r.randint(2, 8)
    numbers = [r.randint(0, 99) for _ in range(size)]
    words = [r.choice(FRUITS + COLORS + ANIMALS) for _ in range(size)]
    some_numbers, some_words = ", ".join(map(str, numbers)), ", ".join(words)
    think = "I work on the list."
    if kind == "ascending":
        user = r.choice(["Sort these numbers in ascending order: ", "Sort from small to large: ",
            "Put these numbers in order: "]) + some_numbers
        answer = ", ".join(map(str, sorted(numbers)))
    elif kind == "descending":
        user = r.choice(["Sort these numbers in descending order: ", "Sort from large to small: "]) + some_numbers
        answer = ", ".join(map(str, sorted(numbers, reverse=True)))
    elif kind == "reverse":
        user = r.choice(["Reverse this list: ", "Write this list backwards: "]) + some_words
        answer = ", ".join(reversed(words))
    elif kind == "length":
        user = r.choice(["How many words are in this list: ", "Count the items: "]) + some_words
        answer = str(size)
    elif kind == "copy":
        answer = r.choice([some_words, sentence(r)])
        user = r.choice(["Repeat exactly: ", "Copy this text: "]) + answer
    elif kind == "largest":
        user = r.choice(["What is the largest number: ", "Find the maximum of "]) + some_numbers
        answer = str(max(numbers))
    elif kind == "smallest":
        user = r.choice(["What is the smallest number: ", "Find the minimum of "]) + some_numbers
        answer = str(min(numbers))
    elif kind == "occurrences":
        user, think, answer = _occurrences(r)
    elif kind == "end":
        which, i = r.choice([("first", 0), ("last", -1)])
        user, answer = f"What is the {which} word of this list: {some_words}", words[i]
    else:
        distinct = r.sample(FRUITS + ANIMALS, min(size, 4))
        user, answer = "Write these words as a JSON list: " + ", ".join(distinct), json.dumps(distinct)
    return Task("list", user, think=think, answer=answer)


def _occurrences(r):
    """Returns a task to count a word in a list of three kinds of fruit. The reasoning contains the running count."""
    pool = r.sample(FRUITS, 3)
    words = [r.choice(pool) for _ in range(r.randint(3, 9))]
    running, seen = [], 0
    for word in words:
        seen += word == pool[0]
        running.append(f"{word} {seen}")
    return f"How many times does {pool[0]} appear in this list: {', '.join(words)}", ", ".join(running), str(seen)


def json_task(r):
    """Returns a task to copy the values of a sentence into named JSON fields."""
    who, age, city = r.choice(NAMES), r.randint(18, 90), r.choice(CITIES)
    kind = r.randrange(4)
    if kind == 0:
        forms = ["{name} is {age} years old and lives in {city}.", "{name}, aged {age}, comes from {city}.",
                 "In {city} lives {name}, who is {age} years old."]
        asked, fields = "name, age and city", dict(name=who, age=age, city=city)
    elif kind == 1:
        forms = ["{name} works as a {job} in {city}.", "The {job} from {city} is called {name}.",
            "{name} from {city} is a {job}."]
        asked, fields = "name, job and city", dict(name=who, job=r.choice(JOBS), city=city)
    elif kind == 2:
        forms = ["{customer} ordered {quantity} {item} for {price} dollars.",
            "An order of {quantity} {item} by {customer} costs {price} dollars."]
        asked = "customer, item, quantity and price"
        fields = dict(customer=who, item=r.choice(GOODS)[1], quantity=r.randint(2, 40), price=r.randint(2, 99))
    else:
        forms = ["{name} has a {color} {pet} and is {age} years old.",
            "The {color} {pet} belongs to {name}, who is {age} years old."]
        asked, fields = "name, age, pet and color", dict(name=who, age=age, pet=r.choice(ANIMALS),
            color=r.choice(COLORS))
    text = r.choice(forms).format(**fields)
    user = r.choice(["Extract {k} as JSON: {t}", "Return JSON with {k}. Text: {t}", "Read the sentence and give {k} "
        "as JSON.\n{t}"])
    return Task("json", user.format(k=asked, t=text), think="I copy the values into JSON.", answer=json.dumps(fields))
