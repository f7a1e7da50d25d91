//! Which files and folders are believed, and how our own are made.
//!
//! A file that a person names is the person's word. One that is *found* (the settings of a
//! project above the current folder, the daemon of MPS in the usual place, what root keeps of a
//! shared node) may be another user's, who wants to run code in our name. This crate decides:
//!
//! ```text
//!  find_file(path) ──▶ nothing there
//!                  ──▶ left out: Distrust says why, and which `chmod` helps
//!                  ──▶ an open file: regular, ours or root's, and no other user can write to it
//! ```
//!
//! Everything is decided on open descriptors, never on a path that may mean another file a moment
//! later. Who owns the folders above does not matter: what counts is the file itself.
//!
//! What it never does: print, or wait (for a pipe, a device, or another user's file lease).

mod account;
mod found;
mod private;
mod writers;

pub use account::{user_group, user_name};
pub use found::{Distrust, Found, check_link, find_file, is_ours, is_trusted, read_trusted};
pub use private::{
    create_private, create_private_folder, ensure_private_folder, make_private, open_private,
    write_private,
};
pub use writers::Writers;
