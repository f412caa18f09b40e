"""The training recipe of the built-in model: data, model, training, evaluation, export, and a comparison with
transformers."""
