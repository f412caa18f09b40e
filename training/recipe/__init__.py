"""The recipe of the model inside the binary: data, model, training, evaluation, export, and the check against
transformers."""
