//! Packhorse in containers.

mod first_process;
mod home_volume;
mod podman;
mod shared_results;
