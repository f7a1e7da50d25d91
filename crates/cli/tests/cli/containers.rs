//! Packhorse in containers.

mod podman;
mod shared_results;
