//! Packhorse in containers.

mod home_volume;
mod podman;
mod shared_results;
