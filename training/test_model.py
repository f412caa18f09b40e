"""Tests of the model, its rounding, its files and its training. They need torch; each takes seconds on a CPU."""
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors import safe_open

from recipe import checkpoint, items, score, shape, vocabulary
from recipe.blocks import round_activation, round_weight, widen
from recipe.model import Model, Pass
from recipe.schedule import Schedule
from recipe.train import Trainer


torch.set_num_threads(1)  # on a shared machine more threads are slower


class Rounding(unittest.TestCase):
    def test_blocks(self):
        g = torch.Generator().manual_seed(1)
        w = torch.randn(576, 256, generator=g) * torch.logspace(-4, 2, 576)[:, None]
        w[128:256, :128] = 0
        values, scales, wide = round_weight(w)
        self.assertEqual(tuple(scales.shape), (5, 2))
        self.assertTrue(torch.equal(scales.log2(), scales.log2().round()))
        self.assertEqual(float(scales[1, 0]), 1.0)
        self.assertTrue(torch.equal(widen(values, scales), wide))
        self.assertTrue(torch.equal(round_weight(wide)[2], wide), "rounded weights stay as they are")
        full = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:576]
        self.assertTrue(bool(((wide - w).abs() <= torch.maximum(w.abs() / 16, full / 512)).all()))
        self.assertTrue(bool((values.float().abs().max() <= 448).all()))

    def test_stacked_matrices_round_as_each_alone(self):
        w = torch.randn(3, 200, 130, generator=torch.Generator().manual_seed(2))
        for i in range(3):
            for a, b in zip(round_weight(w), round_weight(w[i])):
                self.assertTrue(torch.equal(a[i].float(), b.float()))

    def test_activations(self):
        x = torch.randn(5, 256, generator=torch.Generator().manual_seed(3))
        y = round_activation(x)
        self.assertTrue(torch.equal(round_activation(y), y))
        self.assertLess(float((y - x).abs().max() / x.abs().max()), 0.04)


class Files(unittest.TestCase):
    def test_an_export_has_the_tensors_of_the_shipped_file(self):
        model = Model(shape.read(), 1, "cpu")
        with tempfile.TemporaryDirectory() as d:
            checkpoint.export(model, Path(d))
            with safe_open(f"{d}/model.safetensors", "pt") as ours, safe_open(shape.SHIPPED / "model.safetensors",
                "pt") as theirs:
                self.assertEqual(sorted(ours.keys()), sorted(theirs.keys()))
                for name in ours.keys():
                    a, b = ours.get_slice(name), theirs.get_slice(name)
                    self.assertEqual((a.get_dtype(), a.get_shape()), (b.get_dtype(), b.get_shape()), name)
            loaded = Model(shape.read(), 2, "cpu")
            checkpoint.load(loaded, Path(d))
        model.refresh(True)
        loaded.refresh(True)
        for name, w in model.copy.items():
            self.assertTrue(torch.equal(w, loaded.copy[name]), name)


class Forward(unittest.TestCase):
    def setUp(self):
        self.model = Model(shape.read(), 1, "cpu", torch.float32)
        checkpoint.load(self.model, shape.SHIPPED)
        self.model.refresh(True)

    def test_the_shipped_model_answers(self):
        suite = items.shipped(vocabulary.shipped(), tokens=300, limit=1)
        self.assertEqual(len(suite), 8)
        for name, some in suite.items():
            if name != "list":
                right, _, _ = score.forced(self.model, some)
                self.assertEqual((name, right), (name, 1))
        word = suite["word1"]
        self.assertEqual(score.decode(self.model, word), [word[0].answer])

    def test_later_tokens_change_nothing_before(self):
        s = 320  # more than the number of selected positions
        ids = torch.randint(3, 1280, (1, s + 1), generator=torch.Generator().manual_seed(4))
        other = ids.clone()
        other[0, 300:] = 7
        with torch.no_grad():
            for sparse in (False, True):
                a, b = (self.model.forward(x[:, :s], x[:, 1:], Pass(sparse=sparse))[0] for x in (ids, other))
                self.assertLess(float((a[:300] - b[:300]).abs().max()), 1e-4)
                self.assertGreater(float((a[300:] - b[300:]).abs().max()), 1e-2)

    def test_selection_matters_only_beyond_its_size(self):
        ids = torch.randint(3, 1280, (1, 401), generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            dense, sparse = (self.model.forward(ids[:, :400], ids[:, 1:], Pass(sparse=on))[0] for on in (False, True))
        self.assertLess(float((dense[:256] - sparse[:256]).abs().max()), 1e-4)
        self.assertGreater(float((dense[256:] - sparse[256:]).abs().max()), 1e-4)


class Training(unittest.TestCase):
    def test_a_stopped_run_ends_like_one_that_was_not(self):
        whole, parts = (self._train(stops) for stops in ([6], [3, 6]))
        for name in whole:
            self.assertTrue(torch.equal(whole[name], parts[name]), name)

    def _train(self, stops):
        """Trains six steps of 256 tokens, stopped and resumed at the given steps."""
        with tempfile.TemporaryDirectory() as d:
            for stop in stops:
                model = Model(shape.read(), 1, "cpu")
                trainer = Trainer(model, Schedule(steps=6, seed=3, longest=256), Path(d), lambda text: None, 256,
                    fused=False)
                trainer.run(str(shape.SHIPPED / "tokenizer.json"), 1, 100, 100, probe=None, until=stop)
            return {name: w.clone() for name, w in model.master.items()}

    def test_another_seed_does_not_go_on_with_a_saved_state(self):
        with tempfile.TemporaryDirectory() as d:
            model = Model(shape.read(), 1, "cpu")
            Trainer(model, Schedule(steps=6, seed=3), Path(d), lambda text: None, 256, fused=False).save(0)
            with self.assertRaisesRegex(ValueError, "seed 3, not 4"):
                Trainer(model, Schedule(steps=6, seed=4), Path(d), lambda text: None, 256, fused=False)


if __name__ == "__main__":
    unittest.main()
