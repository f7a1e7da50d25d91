//! The shape of a command: what stays the same when only the values of a sweep
//! change, so that what one task taught about memory holds for the next.
//!
//! ```
//! use packhorse_intake::signature::SignatureDraft;
//! use packhorse_model::Command;
//! use std::collections::BTreeMap;
//! use std::path::Path;
//!
//! let name = |line: &str| {
//!     let (command, folder) = (Command::Line(line.into()), Path::new("/home/me/vision"));
//!     SignatureDraft::new(&command, &BTreeMap::new(), folder).finish(&[]).name
//! };
//! assert_eq!(name("python train.py --lr 0.1 --bs 32"), "vision: python train.py --lr --bs 32");
//! assert_eq!(name("python train.py --lr=3e-4 --bs=32"), "vision: python train.py --lr --bs 32");
//! assert_eq!(name("python train.py 5"), "vision: python train.py # [5]");
//! ```
//!
//! The rule, for each word:
//!
//! | word | becomes | why |
//! |---|---|---|
//! | `--lr 0.1`, `--lr=1e-3`, `-n5`, `--betas 0.9 0.999` | `--lr`, `-n`, `--betas` | a number is what sweeps change, and most numbers do not change memory |
//! | `lr=0.1`, `+opt.wd=1e-4` | `lr=`, `+opt.wd=` | the same for Hydra |
//! | `--batch-size 32`, `bs=32`, `--hidden 64 128` | stays | a whole number after a name that says *size* decides memory; one peak for all batch sizes would be too much for most of them |
//! | `--model resnet50`, `data=cifar10`, `--amp true` | stays | a text chooses something else to run |
//! | `--name a`, `--output-dir out/x`, `seed=1`, `--gpu 3` | `--name`, `--output-dir`, `seed=`, `--gpu` | a label, or where to write, whatever its value is |
//! | `out/run_17`, `ckpt-1000.pt`, `fold3` | `out/run_#`, `ckpt-#.pt`, `fold#` | a counter |
//! | `2024-05-01`, `20240501_1230`, `3f9a1c2b` | `#` | a date, a time stamp, an id |
//! | `cuda:1`, `{"lr": 0.1}` | `cuda:#`, `{"lr": #}` | a number among punctuation |
//! | `5`, `0.1 0.2` where no flag is in front | `#`, and a detail: `[5]` | it may be anything |
//! | `--config cfg/exp1.yaml`, `x.json`, `@args.txt` | `cfg/exp#.yaml`, and a detail: `[1a2b3c4d]` | what is in a small file is what matters of it |
//! | `--config-name exp1`, where that is no file | `exp#`, and a detail: `[exp1]` | it chooses all the rest |
//! | `resnet50`, `llama-3-8b`, `vit_b_16`, `net_2.yaml` | stays | a number that is part of a name |
//! | `CUDA_LAUNCH_BLOCKING=1 …` | nothing | a number in the environment; texts stay, as above |
//! | `/home/me/venv/bin/python3.11 -u` | `python` | |
//! | `/data/sets/imagenet` | `sets/imagenet` | absolute paths differ from machine to machine |
//!
//! In front stands the name of the folder, because every project has a
//! `train.py`. `cd` changes it. Redirections, commands that need no GPU (`cd`,
//! `mkdir`, `tee`, …) and words that only start others (`nohup`, `time`, `env`,
//! `nice`, `taskset`, `timeout`, `uv run`) are left out; `bash -c` is read as
//! what it runs. What `export` sets counts like what stands before the command.
//! `torchrun --nproc_per_node 2` and `accelerate launch` stay: they decide how
//! many processes hold memory. `num_workers` is no size, since loaders hold main
//! memory.
//!
//! The program and its script do not count by what is in them: every edit would
//! lose all that was learned.
//!
//! Details stand apart, in brackets behind the rest: commands that differ only in
//! them are a *family*. Its members are different kinds of command until evidence
//! shows that their details do not matter; that is decided by whoever has the
//! evidence.
//!
//! Where the rule is too fine, one more task is measured. Where it is too
//! coarse, several kinds of task share a distribution, of which the high
//! quantile is reserved, and the ladder catches what exceeds it. So in doubt a
//! word stays. A person who knows better names the signature.

mod command;
mod name;
mod program;
mod shape;
#[cfg(test)]
mod tests;
mod text;

pub use shape::{Signature, SignatureDraft, content_hash, is_member};
