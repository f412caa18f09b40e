"""Tests of the generators and of the order of data. They need tokenizers and numpy, but not torch."""
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from recipe import items, vocabulary
from recipe.data.arithmetic import FAMILIES, Story, word_problem
from recipe.data.documents import Document, find_task
from recipe.data.lists import json_task, list_task
from recipe.data.rows import OUTPUT, PROMPT, encode, row, turn
from recipe.data.talk import talk_task
from recipe.data.task import END_ID, MARK_ID
from recipe.data.tools import NO_TOOL, TOOLS, tool_task, unoffered
from recipe.feed import Feed, batch
from recipe.schedule import LENGTHS, PHASES, Schedule


class Answers(unittest.TestCase):
    def test_lines_of_word_problems_are_true_and_end_in_the_answer(self):
        for family in FAMILIES:
            for steps in (1, 2, 3, 4):
                for seed in range(50):
                    s = Story(random.Random(seed))
                    family(s, steps)
                    values = []
                    for a, sign, b, c in (m.groups()
                        for m in map(re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)").fullmatch, s.lines) if m):
                        self.assertEqual(eval(f"{a} {sign} {b}"), int(c))
                        values.append(int(c))
                    self.assertEqual(values[-1], s.value)
                    self.assertIn("?", s.sentences[-1])

    def test_word_problems_have_as_many_steps_as_asked(self):
        r = random.Random(1)
        counts = [word_problem(r, n).think.count(" = ") == n for n in (1, 2, 3, 4) for _ in range(100)]
        self.assertGreater(sum(counts), 390)  # a division of fewer than five things has one step

    def test_a_document_states_what_it_is_asked(self):
        for seed in range(200):
            for odd in (False, True):
                d = Document(random.Random(seed), 600, odd)
                for (attribute, owner), value in d.facts.items():
                    line = next(l for l in re.split(r"(?<=\.)[ \n]", d.text) if attribute in l
                        and owner.lower() in l.lower() and value in l)
                    self.assertTrue(line)
                for kind in ("one", "two", "hop"):
                    task = d.ask(kind)
                    for value in task.final.split():
                        self.assertIn(value, d.text)
                        self.assertIn(value, task.answer)

    def test_documents_have_about_the_asked_size(self):
        t = vocabulary.shipped()
        for odd in (False, True):
            for size in (512, 2048):
                r = random.Random(2)
                mean = sum(len(t.encode(Document(r, size, odd).text).ids) for _ in range(40)) / 40
                self.assertLess(abs(mean - size), 0.15 * size, f"odd {odd}, {size} tokens asked, {mean:.0f} made")

    def test_calls_have_the_offered_parameters_in_their_order(self):
        r, orders = random.Random(8), set()
        for _ in range(300):
            task = tool_task(r)
            spec = next(t for t in task.tools if t["name"] == task.call[0])
            arguments = json.loads(task.call[1])
            self.assertEqual(list(arguments), list(spec["parameters"]["properties"]))
            for name, value in arguments.items():
                self.assertIsInstance(value, {"string": str,
                    "integer": int}[spec["parameters"]["properties"][name]["type"]])
                self.assertIn(str(value), task.user)
            if task.call[0] == "find_flight":
                self.assertLess(task.user.index("from " + arguments["origin"]),
                    task.user.index("to " + arguments["destination"]))
                orders.add(tuple(arguments))
        self.assertEqual(len(orders), 2)

    def test_a_request_nobody_offers_to_answer_gets_no_call(self):
        r = random.Random(11)
        offered = list(TOOLS)[1:]
        for _ in range(50):
            task = unoffered(r, offered)
            self.assertIn("weather", task.user)
            self.assertEqual((task.answer, task.call), (NO_TOOL, ()))

    def test_list_answers(self):
        r = random.Random(3)
        seen = set()
        for _ in range(500):
            task = list_task(r)
            _, _, tail = task.user.partition(": ")
            words = tail.split(", ")
            if task.user.startswith("How many times"):
                self.assertEqual(task.answer, str(words.count(task.user.split()[4])))
                self.assertEqual(len(task.think.split(", ")), len(words))
                seen.add("times")
            elif "descending" in task.user:
                self.assertEqual(task.answer.split(", "), sorted(words, key=int, reverse=True))
                seen.add("descending")
            elif task.user.startswith("Reverse"):
                self.assertEqual(task.answer.split(", "), words[::-1])
                seen.add("reverse")
        self.assertEqual(len(seen), 3)


class Order(unittest.TestCase):
    def test_a_batch_depends_on_seed_and_step_alone(self):
        t = vocabulary.shipped()
        s = Schedule(steps=40, seed=5, longest=512)
        path = str(vocabulary.SHIPPED / "tokenizer.json")
        want = [batch(t, s, step, 1024) for step in range(4)]
        for workers in (1, 3):
            feed = Feed(path, s, 1024, workers)
            try:
                for step in range(4):
                    ids, roles = feed.get(step)
                    self.assertTrue((ids == want[step][0]).all() and (roles == want[step][1]).all(),
                        f"{workers} workers, step {step}")
            finally:
                feed.close()
        self.assertFalse(want[0][0].shape == want[1][0].shape and (want[0][0] == want[1][0]).all())

    def test_texts_do_not_depend_on_the_hash_seed(self):
        program = ("import random, hashlib; from recipe.data.rows import row; r = random.Random(9); "
                   "print(hashlib.sha256(repr([row(r, s, 0.3) for s in (256, 512, 1024) for _ in "
                   "range(5)]).encode()).hexdigest())")
        out = {subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True,
            check=True).stdout
               for seed in ("1", "2")}
        self.assertEqual(len(out), 1)

    def test_a_resumed_schedule_goes_on_where_it_stopped(self):
        whole = Schedule(steps=1000, seed=1)
        rest = Schedule(steps=1000, seed=1, first=640, start=whole.position(640))
        for step in range(640, 1000):
            self.assertEqual(whole.length(step), rest.length(step))
            self.assertAlmostEqual(whole.rate(step), rest.rate(step))
        self.assertEqual(rest.last(), 1000)
        shorter = Schedule(steps=500, seed=1, first=640, start=whole.position(640))
        self.assertEqual(shorter.last(), 820)
        self.assertAlmostEqual(shorter.position(820), 1.0)

    def test_phases(self):
        s = Schedule(steps=1000, seed=1)
        self.assertEqual([s.phase(int(p.begin * 1000)).name for p in PHASES], [p.name for p in PHASES])
        self.assertTrue(all(len(p.mix) == len(LENGTHS) for p in PHASES))
        self.assertAlmostEqual(s.rate(399), 1.0)
        self.assertAlmostEqual(s.rate(999), 0.02)


class Tokens(unittest.TestCase):
    def test_an_item_has_the_tokens_of_the_same_turn_in_training(self):
        t, r = vocabulary.shipped(), random.Random(4)
        for make in (word_problem, list_task, json_task, talk_task, tool_task, lambda r: find_task(r, 300)):
            task = make(r)
            item = items.made(t, task)
            (ids, roles), = encode(t, [turn(task, False)])
            answer = [i for i, role in zip(ids, roles) if role == OUTPUT]
            prompt = [i for i, role in zip(ids, roles) if role == PROMPT]
            self.assertEqual(item.answer, answer)
            self.assertEqual(item.prompt[-len(prompt):], prompt)
            self.assertEqual(item.answer[-1], END_ID)

    def test_shipped_items_have_the_tokens_their_files_say(self):
        for name, some in items.shipped(vocabulary.shipped(), limit=5).items():
            for item in some:
                self.assertEqual(len(item.prompt), item.record["tokens"], name)

    def test_rows_are_nearly_full(self):
        t, r = vocabulary.shipped(), random.Random(6)
        for size in LENGTHS[:4]:
            rows = [len(ids) for ids, _ in encode(t, [row(r, size, 0.3) for _ in range(20)])]
            self.assertGreater(sum(min(n, size) for n in rows) / 20, 0.75 * size)

    def test_a_built_tokenizer_is_of_the_shipped_kind(self):
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "tokenizer.json"
            vocabulary.build(path, 600, rows=30)
            built = json.loads(path.read_text())
        shipped = json.loads((vocabulary.SHIPPED / "tokenizer.json").read_text())
        for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"):
            self.assertEqual(built[part], shipped[part], part)
        self.assertEqual(len(built["model"]["vocab"]), 600)

    def test_marks_have_their_ids(self):
        t = vocabulary.shipped()
        for mark, i in MARK_ID.items():
            self.assertEqual(t.token_to_id(mark), i)


if __name__ == "__main__":
    unittest.main()
