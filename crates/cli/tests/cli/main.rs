//! Behaviour that people see, through the real binary.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod support;

mod again;
mod arguments;
mod cores;
mod csv;
mod dropin;
mod edges;
mod end_with;
mod environment;
mod events;
mod experiments;
mod export;
mod gpus;
mod grid;
mod health;
mod intake;
mod leftovers;
mod listing;
mod live;
mod logs;
mod machine;
mod memory;
mod metrics;
mod migration;
mod mps;
mod order;
mod other_runs;
mod output;
mod output_file;
mod placing;
mod plan;
mod preload;
mod results_table;
mod run;
mod settings;
mod signals;
mod slurm;
mod strangers;
mod sweep;
mod task_lines;
mod tenancy;
mod terminal;
mod which_gpus;
mod window;
