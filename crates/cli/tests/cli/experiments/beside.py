"""What the original cw2 makes of experiment files.

    beside.py make FOLDER SEED COUNT    writes random experiment files
    beside.py read FILE ...             prints what cw2 makes of each, a JSON object a line
    beside.py write FILE                has cw2 write a file back, where it says
    beside.py yaml FILE                 prints the documents of a file as JSON
"""

import contextlib
import io
import json
import logging
import math
import os
import random
import re
import sys

import yaml
from cw2 import job
from cw2.cw_config import cw_config

# What PyYAML takes for text, although everybody means a number.
NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?$")


def plain(value):
    """The value as we write it as JSON, with such numbers as numbers."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return {"!dict": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"!tuple": plain(list(value))}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"!float": str(value)}
    if isinstance(value, str) and NUMBER.match(value) and ("e" in value.lower() or "." in value):
        return float(value.replace("_", ""))
    return value


def read(path, debug=False, debug_all=False, selected=None):
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            config = cw_config.Config(path, selected, debug, debug_all)
            factory = job.JobFactory(None, None, read_only=True)
            jobs = factory._divide_tasks(config.exp_configs)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "configs": [plain(dict(exp)) for exp in config.exp_configs],
        "jobs": [[exp["_rep_log_path"] for exp in one] for one in jobs],
        "slurm": config.slurm_config and config.slurm_config["name"],
    }


SCALARS = """1 0 -3 +5 0.1 0.10 1e-3 1E5 1.5e3 1.5e+3 .5 -.5 5. 010 0o17 0x1F 0b11 1_000 12:30 1:30.5
yes No on Off true False ~ null None .inf -.inf 'yes' '010' '' "a b" 'x,y (z) [w]' "it's" "say \\"so\\"" word
two_words a.b a-b path/of/it äöü "tab\\tand" [1, 2] [] [[1, a], 2.5] {} {a: 1, b: [x, ~]} {100: a, 20: b} ["1", 1] !!python/tuple [1, a]"""
SCALARS = re.findall(r"""\[\[.*?\], .*?\]|\{.*?\}|!!\S+ \[.*?\]|\[.*?\]|"(?:\\.|[^"])*"|'(?:''|[^'])*'|\S+""", SCALARS)
NAMES = ["lr", "batch_size", "hidden", "layer_sizes", "a__b", "x", "kl_weight", "ä_ö", "_private", "opt.name", "seed"]
FOLDERS = ["network", "opt", "env_args"]


def make(folder, seed, count):
    rng = random.Random(seed)

    def scalar():
        return rng.choice(SCALARS)

    def params(depth=0):
        parts = []
        for name in rng.sample(NAMES, rng.randrange(1, 4)):
            parts.append(f"{name}: {scalar()}")
        for name in rng.sample(FOLDERS, rng.choice([0, 0, 1, 2]) if depth < 2 else 0):
            parts.append(f"{name}: {params(depth + 1)}")
        rng.shuffle(parts)
        return "{" + ", ".join(parts) + "}"

    def expansion(depth=0):
        parts = []
        for name in rng.sample(NAMES, rng.randrange(1, 4)):
            if rng.randrange(8) == 0:
                parts.append(f"{name}: {rng.choice(['1', 'word', '~'])}")
            else:
                values = ", ".join(scalar() for _ in range(rng.randrange(1, 4)))
                parts.append(f"{name}: [{values}]")
        for name in rng.sample(FOLDERS, rng.choice([0, 0, 1]) if depth < 2 else 0):
            parts.append(f"{name}: {expansion(depth + 1)}")
        rng.shuffle(parts)
        return "{" + ", ".join(parts) + "}"

    def document(name, imports=(), whole=False):
        lines = [f"name: {name}"]
        for key in ["repetitions", "iterations", "reps_per_job", "reps_in_parallel"]:
            if rng.randrange(2) or whole:
                lines.append(f"{key}: {rng.randrange(1, 4)}")
        if rng.randrange(2) or whole:
            lines.append(f"path: {rng.choice(['results', './out', 'a/b/', '/tmp/abs'])}")
        if rng.randrange(3):
            lines.append(f"params: {params()}")
        if rng.randrange(3) == 0:
            lines.append(f"anything: {params()}")
        words = ["grid", "list", "ablative", "grid1", "list--2", "ablative_b", "gridlock"]
        for key in rng.sample(words, rng.choice([0, 0, 1, 1, 2])):
            lines.append(f"{key}: {expansion()}")
        if imports and rng.randrange(2):
            lines.extend(rng.choice(imports))
        rng.shuffle(lines)
        return "---\n" + "\n".join(lines) + "\n"

    for number in range(count):
        base = f"base{number}.yml"
        imports = [[f"import_path: {base}"], [f"import_path: ./{base}", "import_exp: parent"], [f"import_path: sub/../{base}"]]
        with open(os.path.join(folder, base), "w") as out:
            out.write("---\nname: default\npath: base\nrepetitions: 2\nparams: " + params() + "\n")
            out.write(document("parent"))
        text = ""
        has_default = rng.randrange(4) > 0
        if has_default:
            text += document("DEFAULT", imports if rng.randrange(4) == 0 else (), True)
        if rng.randrange(3) == 0:
            text += "---\nname: SLURM\npartition: p\n"
        for name in rng.sample(["exp", "two_words", "with__two", "A.b", "exp2", "Plain"], rng.randrange(1, 4)):
            text += document(name, imports, not has_default)
        with open(os.path.join(folder, f"config{number}.yml"), "w") as out:
            out.write(text)


logging.disable(logging.CRITICAL)
what, *words = sys.argv[1:]
if what == "make":
    make(words[0], int(words[1]), int(words[2]))
elif what == "read":
    for path in words:
        for options in [{}, {"debug": True}, {"debug_all": True}]:
            print(json.dumps({"file": path, "options": list(options), **read(path, **options)}))
elif what == "write":
    with contextlib.redirect_stdout(io.StringIO()):
        cw_config.Config(words[0]).to_yaml(relpath=True)
elif what == "yaml":
    with open(words[0]) as file:
        print(json.dumps(plain(list(yaml.load_all(file, yaml.FullLoader)))))
