"""Make a GGUF file of a checkpoint with the converter of Debian's llama.cpp-tools.

    python3 convert.py CHECKPOINT FILE.gguf [OUTTYPE]

OUTTYPE is the value of the converter's option --outtype; the default is bf16. The converter identifies vocabularies
by a fingerprint, and it does not know the fingerprints of synthetic checkpoints, so this script sets the
pre-tokenizer of DeepSeek-V3. A checkpoint without a vocabulary, such as those in testdata/oracle, gets the first
tokens of the built-in model's vocabulary. The converter does everything else. TOOLS and SCRIPT are the paths of its
modules and of its script, if they differ from those of the package.
"""

import json
import os
import pathlib
import runpy
import sys
import tempfile

TOOLS = os.environ.get("TOOLS", "/usr/share/llama.cpp/llama.cpp-tools")
SCRIPT = os.environ.get("SCRIPT", "/usr/share/doc/llama.cpp-tools/scripts/convert_hf_to_gguf.py")
BUILTIN = pathlib.Path(__file__).resolve().parents[2] / "builtin"


def with_vocabulary(checkpoint, folder):
    """Links the files of the checkpoint into the folder, and writes a vocabulary of as many tokens as its embedding has
    rows."""
    for file in checkpoint.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((checkpoint / "config.json").read_text())
    config.setdefault("scoring_func", "sigmoid")  # default of transformers, which it does not write to config.json
    (folder / "config.json").write_text(json.dumps(config))
    size = config["vocab_size"]
    tokenizer = json.loads((BUILTIN / "tokenizer.json").read_text())
    model = tokenizer["model"]
    merged = len(model["vocab"]) - len(model["merges"])  # ids from this number on are results of merges, in order
    if not merged <= size <= len(model["vocab"]):
        sys.exit(f"{checkpoint} has {size} tokens and no vocabulary; the built-in model's can be cut to {merged} to "
                 f"{len(model['vocab'])} tokens")
    model["vocab"] = {token: id for token, id in model["vocab"].items() if id < size}
    model["merges"] = model["merges"][:size - merged]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").symlink_to(BUILTIN / "tokenizer_config.json")
    return folder


def check(checkpoint):
    """Exits with one line that names a missing file, before the conversion."""
    if not (checkpoint / "config.json").exists():
        sys.exit(f"convert.py: {checkpoint}: no checkpoint with a config.json exists there; 'sparrow synth' writes one")
    for name, variable, path in (("modules", "TOOLS", TOOLS), ("script", "SCRIPT", SCRIPT)):
        if not os.path.exists(path):
            sys.exit(f"convert.py: the {name} of llama.cpp's converter: {path} does not exist; apt-get install "
                     f"llama.cpp-tools (Debian sid), or set {variable} to the path")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    checkpoint, gguf, outtype = pathlib.Path(sys.argv[1]), sys.argv[2], (sys.argv[3:] or ["bf16"])[0]
    check(checkpoint)
    try:
        convert(checkpoint, gguf, outtype)
    except ModuleNotFoundError as missing:
        package = missing.name.partition(".")[0]
        if package == "conversion":
            sys.exit(f"convert.py: {TOOLS} has no module {missing.name}: set TOOLS to the folder of the "
                     "converter's modules of llama.cpp 0.7.0, or apt-get install llama.cpp-tools (Debian sid)")
        sys.exit(f"convert.py: llama.cpp's converter needs the Python package {package}: apt-get install "
                 f"python3-{package}, or pip install {package}; docs/benchmarks/record-cpu.md lists all of them")


def convert(checkpoint, gguf, outtype):
    sys.path.insert(0, TOOLS)

    import conversion.base as base
    import conversion.deepseek as deepseek
    import conversion.glm as glm

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "deepseek-v3"
    for family in deepseek.DeepseekV32Model, glm.GlmMoeDsaModel:
        family.set_vocab = lambda self: self._set_vocab_gpt2()
    with tempfile.TemporaryDirectory() as folder:
        if not (checkpoint / "tokenizer.json").exists():
            checkpoint = with_vocabulary(checkpoint, pathlib.Path(folder))
        sys.argv = [SCRIPT, str(checkpoint), "--outtype", outtype, "--outfile", gguf]
        runpy.run_path(SCRIPT, run_name="__main__")


if __name__ == "__main__":
    main()
