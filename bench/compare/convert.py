"""Make a GGUF file of a synthetic checkpoint with the converter of Debian's llama.cpp-tools.

    python3 convert.py CHECKPOINT FILE.gguf

The converter knows vocabularies by their fingerprint, and that of a synthetic checkpoint is in no list. Speed does
not depend on it, so the file is labelled with the rule of DeepSeek-V3; everything else is the converter's own work.
"""

import runpy
import sys

TOOLS = "/usr/share/llama.cpp/llama.cpp-tools"  # where the package puts the converter's modules
SCRIPT = "/usr/share/doc/llama.cpp-tools/scripts/convert_hf_to_gguf.py"

if len(sys.argv) != 3:
    sys.exit(__doc__)
checkpoint, gguf = sys.argv[1:]
sys.path.insert(0, TOOLS)

import conversion.base as base  # noqa: E402
import conversion.deepseek as deepseek  # noqa: E402

base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "deepseek-v3"
deepseek.DeepseekV32Model.set_vocab = lambda self: self._set_vocab_gpt2()
sys.argv = [SCRIPT, checkpoint, "--outtype", "bf16", "--outfile", gguf]
runpy.run_path(SCRIPT, run_name="__main__")
