//! Behaviour that people see, through the real binary.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod support;

mod again;
mod arguments;
mod containers;
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
mod hostile_output;
mod intake;
mod leftovers;
mod limits;
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
mod other_users;
mod output;
mod output_file;
mod own_paths;
mod placing;
mod plan;
mod preload;
mod preload_generators;
mod results_table;
mod run;
mod seed;
mod settings;
mod signals;
mod slurm;
mod strangers;
mod sweep;
mod task_lines;
mod tenancy;
mod terminal;
mod which_gpus;
mod whole_files;
mod window;
