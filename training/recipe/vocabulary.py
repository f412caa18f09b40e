"""The tokenizer: the shipped file, or a new one built from the recipe's own text.

Training uses the shipped file, so that the weights of every run fit the embedded tokenizer. build trains a tokenizer
of the same kind: byte-level BPE with DeepSeek-V3's pre-tokenizer, except that every digit is a token.
"""
import json
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .data.rows import row
from .data.task import MARK_ID, MARKS, PAD_ID
from .shape import SHIPPED

# Words with one leading sign or space, runs of signs, line breaks, white space.
_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" "\r\n"
    r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[""" "\r\n"
    r"""]*|\s*[""" "\r\n" r"""]+|\s+(?!\S)|\s+""")
_CJK = "[一-龥぀-ゟ゠-ヿ]+"


def shipped():
    return Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))


def corpus(seed, rows):
    """Yields the texts of random rows, without marks."""
    r = random.Random(seed)
    for _ in range(rows):
        for text, _ in row(r, r.choice([256, 256, 512, 512, 1024]), 0.18):
            if text not in MARK_ID:
                yield text


def build(path, size, rows=4000, seed=7):
    """Trains a tokenizer of size ids on random rows and writes it. Only the first three marks are special; the others
    are part of the visible text."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in (r"\p{N}", _CJK, _WORDS)]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus(seed, rows), trainers.BpeTrainer(
        vocab_size=size, special_tokens=MARKS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    fields = json.loads(t.to_str())
    for token in fields["added_tokens"]:
        token["special"] = token["id"] <= PAD_ID
    path.write_text(json.dumps(fields, ensure_ascii=False, indent=1))
