"""Texts with facts, and questions about them: one fact, two facts, or the fact about a person whom another fact names.

A document is prose or log lines. One of five is *odd*: it has unknown words in the filler, invented names and things as
owners, facts in other wordings, and numbers that answer no question. Questions about it have more wordings; the form of
the answer is the same.
"""
from .task import Task
from .words import (
    ADJECTIVES, ANIMALS, CITIES, COLORS, ENDINGS, FRUITS, JOBS, NAMES, NOUNS, VERBS, invented)

ATTRIBUTES = [
    ("access code", "code"), ("room number", "number"), ("locker number", "number"), ("phone number", "code"),
    ("home city", "city"),
    ("favorite color", "color"), ("pet", "animal"), ("job", "job"), ("favorite fruit", "fruit"),
    ("seat number", "number"),
    ("parcel number", "code"), ("password", "code")]
ODD_ATTRIBUTES = ATTRIBUTES + [
    ("secret code", "code"), ("badge number", "number"), ("order number", "code"), ("account number", "code"),
    ("birth year", "year"),
    ("magic word", "word")]
RELATIONS = ["partner", "boss", "neighbor", "teacher", "best friend"]
LOGS = [
    "worker {n} finished job {m} in {k} ms", "cache miss for page {m}", "request {m} served in {k} ms",
    "node {n} joined the group",
    "retry {k} of task {m}", "disk {n} is {k} percent full", "queue length is {k}"]
THINGS = "safe gate vault locker door laptop printer server".split()

# Tokens of a filler line and of a line with a fact, by form of the document: means over a thousand lines with the
# project's tokenizer, rounded.
PROSE_TOKENS, ODD_TOKENS, LOG_TOKENS, ODD_LOG_TOKENS = (10.5, 8), (14.5, 15), (25.5, 20), (25.5, 27)


def sentence(r):
    """Returns a sentence of filler that answers no question."""
    a, b, n, m = r.choice(ADJECTIVES), r.choice(ADJECTIVES), r.choice(NOUNS), r.choice(NOUNS)
    v, t = r.choice(VERBS), r.choice(ENDINGS)
    return r.choice([
        f"The {a} {n} {v} {t}.", f"A {a} {n} {v} behind the {b} {m}.", f"Nobody sees the {n} because the {m} {v} {t}.",
        f"The {n} and the {m} are {a} and {b}.", f"Near the {a} {n} there is a {m} that {v} {t}.",
        f"When the {n} {v}, the {a} {m} is {b}."])


def odd_sentence(r):
    """Returns a sentence of filler with invented words and with numbers that answer no question."""
    a, n, v, t, u = r.choice(ADJECTIVES), r.choice(NOUNS), r.choice(VERBS), r.choice(ENDINGS), invented(r)
    return r.choice([
        sentence(r), f"The {u} {n} {v} {t}.", f"Nobody knows why {u.capitalize()} and the {a} {n} are here.",
        f"There are {r.randint(2, 9999)} steps to the {a} {n}.", f"In {r.randint(1500, 2100)} the {n} of "
        f"{u.capitalize()} was {a}.",
        f"{r.choice(NAMES)} saw the {a} {u} {t}."])


def stamp(r):
    return f"[{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}] "


def log_line(r):
    return stamp(r) + r.choice(LOGS).format(n=r.randint(1, 20), m=r.randint(100, 9999), k=r.randint(1, 99))


def code(r):
    """Returns a number, mostly of four digits, otherwise of three to eight."""
    digits = 4 if r.random() < 0.75 else r.choice([3, 5, 6, 7, 8])
    return str(r.randint(10 ** (digits - 1), 10 ** digits - 1))


def number(r):
    """Returns a number, mostly of two or three digits, otherwise of one, four or five."""
    digits = r.choice([2, 3, 3]) if r.random() < 0.8 else r.choice([1, 4, 4, 5])
    return str(r.randint(10 ** (digits - 1), 10 ** digits - 1))


_VALUE = dict(
    code=code, number=number, year=lambda r: str(r.randint(1900, 2030)), word=invented,
    city=lambda r: r.choice(CITIES), color=lambda r: r.choice(COLORS), animal=lambda r: r.choice(ANIMALS),
    job=lambda r: r.choice(JOBS), fruit=lambda r: r.choice(FRUITS))


class Document:
    """A text of about the given number of tokens, and its facts: facts[attribute, owner] = value, relations[kind,
    owner] = another owner."""

    def __init__(self, r, tokens, odd=None):
        self.r, self.facts, self.relations = r, {}, {}
        self.odd = r.random() < 0.2 if odd is None else odd
        logs = r.random() < 0.25
        planted = self._plant(max(2, min(r.randint(3, 30), tokens // 30)))
        if logs:
            filler, (each, fact) = log_line, ODD_LOG_TOKENS if self.odd else LOG_TOKENS
        else:
            filler, (each, fact) = (odd_sentence, ODD_TOKENS) if self.odd else (sentence, PROSE_TOKENS)
        lines = [filler(r) for _ in range(max(1, int((tokens - fact * len(planted)) / each)))]
        for line in planted:
            lines.insert(r.randint(0, len(lines)), stamp(r) + line if logs else line)
        self.text = ("\n" if logs else " ").join(lines)

    def _plant(self, count):
        """Draws facts and relations, and returns the lines that state them."""
        r, lines = self.r, []
        pool = ODD_ATTRIBUTES if self.odd else ATTRIBUTES
        attributes = r.sample(pool, r.randint(1, 6))
        for _ in range(count):
            (attribute, kind), owner = r.choice(attributes), self._owner()
            if (attribute, owner) not in self.facts:
                value = self.facts[attribute, owner] = _VALUE[kind](r)
                lines.append(self._state(attribute, owner, value))
        owners = list(dict.fromkeys(owner for _, owner in self.facts))
        for person in r.sample(NAMES, r.randint(1, 5)):
            relation, other = r.choice(RELATIONS), r.choice(owners)
            if other != person and (relation, person) not in self.relations:
                self.relations[relation, person] = other
                lines.append(f"The {relation} of {person} is {other}.")
        return lines

    def _owner(self):
        r = self.r
        if not self.odd or r.random() < 0.4:
            return r.choice(NAMES)
        if r.random() < 0.6:
            return invented(r).capitalize()
        return f"the {r.choice(COLORS)} {r.choice(THINGS)}"

    def _state(self, attribute, owner, value):
        plain = f"The {attribute} of {owner} is {value}."
        if not self.odd or self.r.random() < 0.4:
            return plain
        the = plain[0].lower() + plain[1:]
        return self.r.choice([
            f"{owner[0].upper()}{owner[1:]}'s {attribute} is {value}.", f"Remember that {the}", f"Please note: {the}",
            f"By the way, {the}", f"{value} is the {attribute} of {owner}."])

    def ask(self, kind=""):
        """Returns a question of the kind one, two or hop, by default a random one. If the document cannot answer a
        question of this kind, the question is about one fact."""
        r, known = self.r, list(self.facts)
        kind = kind or r.choices(["one", "two", "hop"], [60, 20, 20])[0]
        if kind == "hop" and self.relations:
            (relation, person), other = r.choice(list(self.relations.items()))
            attribute = r.choice([a for a, owner in known if owner == other])
            final = self.facts[attribute, other]
            user = r.choice(["What is the {a} of the {k} of {w}?",
                "Give the {a} of the {k} of {w}."]).format(a=attribute, k=relation, w=person)
            answer = f"The {relation} of {person} is {other}. The {attribute} of {other} is {final}."
        elif kind == "two" and len(known) > 1:
            (a1, w1), (a2, w2) = pair = r.sample(known, 2)
            final = " ".join(self.facts[k] for k in pair)
            user = f"What is the {a1} of {w1} and the {a2} of {w2}?"
            answer = " ".join(f"The {k[0]} of {k[1]} is {self.facts[k]}." for k in pair)
        else:
            kind, (attribute, owner) = "one", r.choice(known)
            final = self.facts[attribute, owner]
            forms = ["What is the {a} of {w}?", "Tell me the {a} of {w}.", "Which {a} does {w} have?"]
            if self.odd:
                forms += ["What is {w}'s {a}?", "Find the {a} of {w}.", "{w}: {a}?"]
            user = r.choice(forms).format(a=attribute, w=owner)
            answer = f"The {attribute} of {owner} is {final}."
        return Task("find_" + kind, user, think="I search the text.", answer=answer, final=final)

    def prompt(self, question):
        """Returns the document and a question as one message."""
        return self.r.choice([
            "{t}\n\n{q}", "Read the text and answer the question.\n\n{t}\n\nQuestion: {q}",
            "Text:\n{t}\n\nQuestion: {q}",
            "Here are my notes.\n{t}\n\nUse the notes to answer. {q}"]).format(t=self.text, q=question)


def find_task(r, tokens, kind="", odd=None):
    """Returns a task of a whole document with one question."""
    document = Document(r, tokens, odd)
    task = document.ask(kind)
    task.user = document.prompt(task.user)
    return task
