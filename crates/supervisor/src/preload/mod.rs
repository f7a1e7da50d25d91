//! Attempts that are forked from a Python that has imported their modules.
//!
//! ```text
//!  ask_for_fork ──▶ WaitingStart, in the attempt's slot
//!                        │ words, environment, folder, cores, 0, 1, 2, gate
//!                        ▼
//!   PreloadedPython ── server.py: imports, then forks ──▶ a process at its gate
//!                        │ its number                          │
//!                        ▼                                     │
//!              RunningAttempt, the gate is opened ─────────────┴▶ the task runs
//! ```
//!
//! There is one such Python for everything that decides how modules are imported: the
//! interpreter and its options, the modules, where it looks for them, and the variables
//! that libraries read when they are loaded. It sees no GPU.
//!
//! A forked process waits at its *gate* until we know its number. So it cannot end before
//! anybody knows whose end that is, and one that is not wanted any more, or whose Python
//! or supervisor has died meanwhile, finds the gate shut and was never there.
//!
//! - A module that cannot be imported is the outcome of every attempt that waits for it.
//! - A Python that is killed takes none of the processes with it that it has forked: they
//!   are our children. Who waits for it is forked from another one, once.
//! - A Python ends when we do, however that happens, even while it imports.
//! - What is no Python, or one that reads its program from its input, is started as ever,
//!   and that is told once.

mod command;
mod forks;
mod key;
mod python;
mod pythons;

pub(crate) use forks::WaitingStart;
pub(crate) use pythons::Pythons;
