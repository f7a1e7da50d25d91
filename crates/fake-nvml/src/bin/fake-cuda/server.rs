//! Computing through an MPS server.

use std::io;
use std::path::Path;

use packhorse_fake_nvml::FakeDevice;
use packhorse_fake_nvml::mps::{Detached, LIMIT_VARIABLE, MpsConnection, PIPE_VARIABLE};

use crate::options::size;

/// Attaches to the server of the environment's pipe folder, if there is one.
pub fn attach() -> io::Result<Option<MpsConnection>> {
    match std::env::var_os(PIPE_VARIABLE) {
        Some(pipes) => MpsConnection::new(Path::new(&pipes), std::process::id()),
        None => Ok(None),
    }
}

/// Under a server a program has the server's devices only, and counts them.
pub fn keep_served(machine: &mut Vec<FakeDevice>, served: &[String]) {
    let is_served = |uuid: &String| served.contains(uuid);
    machine.retain(|device| {
        is_served(&device.uuid) || device.instances().iter().any(|i| is_served(&i.uuid))
    });
}

/// The limit of a device by its number, in bytes: `0=9216M,1=512M`.
pub fn limit(ordinal: usize) -> Option<u64> {
    let limits = std::env::var(LIMIT_VARIABLE).ok()?;
    limits.split(',').find_map(|limit| {
        let (device, bytes) = limit.split_once('=')?;
        (device.trim().parse() == Ok(ordinal)).then(|| size(bytes.trim()).ok())?
    })
}

/// What CUDA says when a program has no server any more.
pub fn last_words(detached: Detached) -> &'static str {
    match detached {
        Detached::ServerDied => {
            "RuntimeError: CUDA error: the remote procedural call between the MPS server and \
             the MPS client failed"
        }
        Detached::Terminated => {
            "RuntimeError: CUDA error: the MPS client has been terminated by the server"
        }
    }
}

/// What CUDA says when there is a daemon, but no server is to be had.
pub const NO_SERVER: &str = "RuntimeError: CUDA error: MPS client failed to connect to the MPS \
                             control daemon or the MPS server";
