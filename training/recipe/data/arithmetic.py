"""Word problems of one to four steps. The output is one line of arithmetic per step and then `#### n`, as in GSM8K."""
import operator

from .task import Task
from .words import GOODS, NAMES, OBJECTS

_SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


class Story:
    """A word problem under construction: its sentences, its lines of arithmetic and the current value."""

    def __init__(self, r):
        self.r, self.sentences, self.lines, self.value = r, [], [], 0

    def say(self, *choices, **words):
        self.sentences.append(self.r.choice(choices).format(**words))

    def do(self, a, sign, b):
        """Adds the line "a sign b = c" and returns c."""
        c = _SIGNS[sign](a, b)
        self.lines.append(f"{a} {sign} {b} = {c}")
        self.value = c
        return c


def chain(s, steps):
    """Writes a problem about a number of things that changes in each step."""
    r = s.r
    who, things = r.choice(NAMES), r.choice(OBJECTS)
    s.value = r.randint(5, 90)
    w = dict(w=who, o=things)
    s.say("{w} has {n} {o}.", "{w} starts with {n} {o}.", "In the morning {w} has {n} {o}.", "{w} owns {n} {o}.",
          "There are {n} {o} on the table of {w}.", n=s.value, **w)
    s.lines.append(f"{who} starts with {s.value} {things}.")
    for _ in range(steps):
        now = s.value
        possible = ["more", "more"]
        possible += ["fewer", "fewer"] * (now >= 3) + ["times"] * (now <= 150) + ["half"] * (now % 2 == 0 and now >= 8)
        change, other = r.choice(possible), r.choice(NAMES)
        if change == "more":
            n = r.randint(2, 99)
            s.say("{w} buys {n} more.", "{w} finds {n} more {o}.", "{p} gives {w} {n} {o}.",
                "Then {w} gets {n} {o} from {p}.",
                  "{w} collects another {n} {o}.", "After that {w} picks up {n} more {o}.",
                  "{w} wins {n} {o} in a game.", n=n, p=other, **w)
            s.do(now, "+", n)
        elif change == "fewer":
            n = r.randint(1, min(now - 1, 99))
            s.say("{w} gives {n} {o} to {p}.", "{w} loses {n} of them.", "Then {w} sells {n} {o}.",
                "{p} takes {n} of the {o}.",
                  "{n} of the {o} break.", "{w} throws away {n} {o}.", "Later {w} trades away {n} {o}.", n=n, p=other,
                  **w)
            s.do(now, "-", n)
        elif change == "times":
            n, verb = r.choice([(2, "doubles"), (2, "doubles"), (3, "triples")])
            s.say("Then {w} {v} the number of {o}.", "The next day {w} {v} the {o}.", v=verb, **w)
            s.do(now, "*", n)
        else:
            s.say("{w} gives half of the {o} to {p}.", "Then {w} sells half of the {o}.", p=other, **w)
            s.do(now, "/", 2)
    s.say("How many {o} does {w} have now?", "How many {o} are left with {w}?",
        "How many {o} does {w} have in the end?",
          "What is the number of {o} {w} has now?", **w)


def shop(s, steps):
    """Writes a problem about purchases: prices times numbers, and the remaining money."""
    r = s.r
    who = r.choice(NAMES)
    (thing, things), (thing2, things2) = r.sample(GOODS, 2)
    number, price = r.randint(2, 12), r.randint(2, 25)
    w = dict(w=who, s=thing, p=things, k=number, c=price)
    s.say("One {s} costs {c} dollars.", "A {s} costs {c} dollars.", "The price of a {s} is {c} dollars.",
          "The shop sells each {s} for {c} dollars.", **w)
    total = s.do(number, "*", price)
    if steps <= 2:
        s.say("{w} buys {k} {p}.", "{w} wants to buy {k} {p}.", "{w} takes {k} {p}.", **w)
    else:
        number2, price2 = r.randint(2, 12), r.randint(2, 25)
        s.say("A {s2} costs {c2} dollars. {w} buys {k} {p} and {k2} {p2}.", s2=thing2, p2=things2, c2=price2,
            k2=number2, **w)
        total = s.do(total, "+", s.do(number2, "*", price2))
    if steps in (1, 3):
        s.say(*(["How much does {w} pay?", "How many dollars does {w} pay?", "What is the total price?"] if steps == 1
                else ["How much does {w} pay in total?"]), **w)
        return
    money = total + r.randint(1, 99)
    s.say("{w} has {m} dollars.", m=money, **w)
    s.say(*(["How much money does {w} have left?", "How many dollars are left after that?"] if steps == 2
            else ["How much money does {w} have left?"]), **w)
    s.do(money, "-", total)


def boxes(s, steps):
    """Writes a problem about boxes with equal numbers of things; then things are added and removed."""
    r = s.r
    w = dict(w=r.choice(NAMES), o=r.choice(OBJECTS),
        x=r.choice(["boxes", "bags", "baskets", "jars", "shelves", "drawers"]))
    k, m = r.randint(2, 12), r.randint(2, 25)
    s.say("{w} has {k} {x} with {m} {o} in each.", "There are {k} {x}. Each of them holds {m} {o}.",
        "{w} fills {k} {x} with {m} {o} each.",
          k=k, m=m, **w)
    s.do(k, "*", m)
    for _ in range(steps - 1):
        now = s.value
        if now > 2 and r.random() < 0.5:
            n = r.randint(1, min(99, now - 1))
            s.say("{w} takes out {n} {o}.", "{n} {o} are given away.", "Then {n} {o} get lost.", n=n, **w)
            s.do(now, "-", n)
        else:
            n = r.randint(2, 99)
            s.say("{w} adds {n} more {o}.", "Then {n} more {o} arrive.", "{n} {o} are put in.", n=n, **w)
            s.do(now, "+", n)
    s.say("How many {o} are there in total?", "How many {o} are there now?", "What is the total number of {o}?", **w)


def share(s, steps):
    """Writes a problem about equal parts of a number, which earlier steps may change."""
    r = s.r
    k, each = r.randint(2, 12), r.randint(2, 20)
    total = k * each
    w = dict(w=r.choice(NAMES), o=r.choice(OBJECTS), k=k,
        g=r.choice(["friends", "children", "neighbors", "players", "students"]))
    if total < 5:
        steps = 1
    if steps == 1:
        s.say("{w} has {t} {o}.", t=total, **w)
    elif steps == 2:
        bought = r.randint(1, total - 2)
        s.say("{w} has {a} {o} and buys {b} more.", a=total - bought, b=bought, **w)
        s.do(total - bought, "+", bought)
    else:
        if steps == 4:
            other, had = r.choice(NAMES), r.randint(2, 50)
            s.say("{p} is one of {k} {g} and has {d} {o}.", p=other, d=had, **w)
        given = r.randint(2, 60)
        bought = r.randint(1, total + given - 2)
        start = total + given - bought
        s.say("{w} has {a} {o} and buys {b} more. Then {w} gives away {c} {o}.", a=start, b=bought, c=given, **w)
        s.do(s.do(start, "+", bought), "-", given)
    s.do(total, "/", k)
    if steps == 4:
        s.say("{w} shares them equally among the {k} {g}. How many {o} does {p} have now?", p=other, **w)
        s.do(had, "+", each)
    else:
        s.say("{w} shares them equally among {k} {g}.", **w)
        s.say("How many {o} does each one get?", "How many does each of them get?", **w)


def compare(s, steps):
    """Writes a problem about two or three people: each person's number is given relative to the previous one."""
    r = s.r
    x, y, z = r.sample(NAMES, 3)
    a = r.randint(10, 99)
    w = dict(x=x, y=y, z=z, o=r.choice(OBJECTS))
    s.say("{x} has {a} {o}.", a=a, **w)
    relation = r.choice(["more", "fewer", "times"])
    if relation == "more":
        b = r.randint(2, 60)
        s.say("{y} has {b} more {o} than {x}.", b=b, **w)
        second = s.do(a, "+", b)
    elif relation == "fewer":
        b = r.randint(1, a - 1)
        s.say("{y} has {b} fewer {o} than {x}.", b=b, **w)
        second = s.do(a, "-", b)
    else:
        b, phrase = r.choice([(2, "twice"), (3, "three times"), (4, "four times")])
        s.say("{y} has {b} as many {o} as {x}.", b=phrase, **w)
        second = s.do(a, "*", b)
    if steps == 1:
        s.say("How many {o} does {y} have?", **w)
        return
    if steps == 2:
        s.say("How many {o} do they have together?", "How many {o} do {x} and {y} have in total?", **w)
        s.do(a, "+", second)
        return
    d = r.randint(2, 60)
    s.say("{z} has {d} more {o} than {y}.", d=d, **w)
    third = s.do(second, "+", d)
    if steps == 3:
        e = r.randint(1, 50)
        s.say("Then {z} gets {e} {o}. How many {o} does {z} have?", e=e, **w)
        s.do(third, "+", e)
    else:
        s.say("How many {o} do all three have together?", **w)
        s.do(s.do(a, "+", second), "+", third)


def rate(s, steps):
    """Writes a problem about an amount per day, week or hour, for several of them, and sometimes a goal."""
    r = s.r
    unit, verb, time = r.choice([
        ("pages", "reads", "day"), ("km", "rides", "day"), ("km", "runs", "week"), ("letters", "writes", "day"),
        ("dollars", "saves", "week"),
        ("dollars", "earns", "hour"), ("cakes", "bakes", "hour"), ("chairs", "builds", "week"),
        ("trees", "plants", "day")])
    w = dict(w=r.choice(NAMES), u=unit, v=verb, t=time)
    a, d = r.randint(2, 25), r.randint(2, 12)
    s.say("{w} {v} {a} {u} every {t} for {d} {t}s.", a=a, d=d, **w)
    done = s.do(a, "*", d)
    if steps == 1:
        s.say("How many {u} is that?", **w)
        return
    b = r.randint(2, 99)
    s.say("After that {w} {v} {b} {u} more.", b=b, **w)
    done = s.do(done, "+", b)
    if steps == 2:
        s.say("How many {u} is that in total?", **w)
        return
    goal = done + r.randint(1, 99)
    s.say("The goal is {g} {u}.", g=goal, **w)
    missing = s.do(goal, "-", done)
    if steps == 3:
        s.say("How many {u} are missing?", **w)
        return
    raised = r.randint(1, 30)
    s.say("Then the goal is raised by {n} {u}. How many {u} are missing now?", n=raised, **w)
    s.do(missing, "+", raised)


def places(s, steps):
    """Writes a problem about rooms or roads with one step, or about gardens, ages or seats with several."""
    if steps == 1:
        long, wide = s.r.randint(2, 25), s.r.randint(2, 12)
        s.say("A room is {a} meters long and {b} meters wide. What is the area of the room in square meters?",
              "A car drives {a} km per hour for {b} hours. How many km does it drive?", a=long, b=wide)
        s.do(long, "*", wide)
        return
    s.r.choice([garden, ages, seats, seats])(s, steps)


def garden(s, steps):
    r = s.r
    long, wide = r.randint(2, 25), r.randint(2, 12)
    s.say("A garden is {a} meters long and {b} meters wide.", a=long, b=wide)
    around = s.do(s.do(long, "+", wide), "*", 2)
    if steps == 2:
        s.say("How many meters of fence are needed to go around it?")
        return
    price = r.randint(2, 9)
    s.say("A fence goes around it. One meter of fence costs {c} dollars.", c=price)
    fence = s.do(around, "*", price)
    if steps == 3:
        s.say("How much does the fence cost?")
        return
    gate = r.randint(2, 99)
    s.say("The gate costs {b} dollars more. How much do the fence and the gate cost together?", b=gate)
    s.do(fence, "+", gate)


def ages(s, steps):
    r = s.r
    x, y, z = r.sample(NAMES, 3)
    young, older, later = r.randint(5, 60), r.randint(2, 30), r.randint(2, 20)
    w = dict(x=x, y=y, z=z, c=later)
    s.say("{x} is {a} years old. {y} is {b} years older than {x}.", a=young, b=older, **w)
    age = s.do(young, "+", older)
    if steps == 2:
        s.say("How old will {y} be in {c} years?", **w)
        s.do(age, "+", later)
        return
    less = r.randint(1, age - 1)
    s.say("{z} is {d} years younger than {y}.", d=less, **w)
    then = s.do(s.do(age, "-", less), "+", later)
    if steps == 3:
        s.say("How old will {z} be in {c} years?", **w)
        return
    s.say("How old will {z} be in {c} years, and how old will {x} and {z} be together then?", **w)
    s.do(then, "+", s.do(young, "+", later))


def seats(s, steps):
    r = s.r
    rows, each = r.randint(3, 12), r.randint(4, 25)
    total = rows * each
    taken = r.randint(1, min(total - 1, 99))
    s.say("A {p} has {k} rows with {m} seats each. {b} seats are taken.",
        p=r.choice(["theater", "bus", "hall", "cinema", "stadium"]),
          k=rows, m=each, b=taken)
    free = s.do(s.do(rows, "*", each), "-", taken)
    if steps == 2:
        s.say("How many seats are free?")
        return
    come = r.randint(0, min(free, 60))
    s.say("Then {c} more people sit down.", c=come)
    free = s.do(free, "-", come)
    if steps == 3:
        s.say("How many seats are free now?")
        return
    leave = r.randint(1, 60)
    s.say("After a while {d} people leave. How many seats are free at the end?", d=leave)
    s.do(free, "+", leave)


FAMILIES = [chain, chain, shop, boxes, share, compare, rate, places]


def word_problem(r, steps=0):
    """Returns a problem with the given number of steps; 0 means a random number."""
    steps = steps or r.choices([1, 2, 3, 4], [25, 35, 28, 12])[0]
    s = Story(r)
    r.choice(FAMILIES)(s, steps)
    work = "\n".join(s.lines)
    end = f"#### {s.value}"
    return Task("word", " ".join(s.sentences), think=work, answer=f"{work}\n{end}", short=end, final=str(s.value))
