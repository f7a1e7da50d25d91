//! Packhorse in containers.

mod first_process;
mod home_volume;
mod no_locks;
mod podman;
mod shared_results;
