use std::ffi::OsString;
use std::path::Path;

use packhorse_model::Bytes;

use super::{MEMORY_VARIABLE, PIPE_VARIABLE, THREADS_VARIABLE};
use crate::Percent;

/// What a program that computes through a daemon is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// The daemon's pipe folder.
    pub pipes: &'a Path,
    /// The share of the GPU's threads that it may use. `None`: what the daemon
    /// gives.
    pub threads: Option<Percent>,
    /// The memory that it may take of each of its devices, in their order.
    /// Nothing: no limit. CUDA obeys it from 11.5 on.
    pub memory: &'a [Bytes],
}

impl Client<'_> {
    /// The variables that tell it. Its devices must be named by UUID beside
    /// them: a daemon that was started for one GPU counts its devices anew, and
    /// any number but 0 means nothing to it.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(PIPE_VARIABLE, self.pipes.as_os_str().to_owned())];
        if let Some(Percent(threads)) = self.threads {
            // Of none at all nothing would ever be computed.
            let threads = threads.clamp(1, 100).to_string();
            variables.push((THREADS_VARIABLE, threads.into()));
        }
        if !self.memory.is_empty() {
            let limits: Vec<String> = (0..)
                .zip(self.memory)
                .map(|(ordinal, bytes): (u32, _)| format!("{ordinal}={}M", mebibytes(*bytes)))
                .collect();
            let limits = limits.join(",");
            variables.push((MEMORY_VARIABLE, limits.into()));
        }
        variables
    }
}

/// Rounded up: a program that needs all it asked for must get it.
fn mebibytes(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(1 << 20)
}

/// What CUDA says to a program whose server went away under it. The program did
/// nothing wrong, as far as that tells.
const SERVER_WENT: [&str; 8] = [
    "the remote procedural call between the MPS server and the MPS client failed",
    "MPS client failed to connect to the MPS control daemon or the MPS server",
    "the MPS server is not ready to accept new MPS client requests",
    "CUDA_ERROR_MPS_RPC_FAILURE",
    "CUDA_ERROR_MPS_CONNECTION_FAILED",
    "CUDA_ERROR_MPS_SERVER_NOT_READY",
    "cudaErrorMpsRpcFailure",
    "cudaErrorMpsServerNotReady",
];

/// Whether a program's output says that its server failed it.
pub fn is_collateral(output: &str) -> bool {
    SERVER_WENT.iter().any(|text| output.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_its_limits_by_the_index_that_it_sees() {
        let client = Client {
            pipes: Path::new("/run/mps"),
            threads: Some(Percent(50)),
            memory: &[Bytes(9 << 30), Bytes((1 << 20) + 1)],
        };
        let told: Vec<(&str, String)> = client
            .environment()
            .into_iter()
            .map(|(name, value)| (name, value.into_string().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                ("CUDA_MPS_PIPE_DIRECTORY", "/run/mps".to_owned()),
                ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50".to_owned()),
                (
                    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                    "0=9216M,1=2M".to_owned()
                ),
            ]
        );
    }

    #[test]
    fn a_client_without_limits_is_told_the_folder_only() {
        let client = Client {
            pipes: Path::new("/run/mps"),
            threads: None,
            memory: &[],
        };
        assert_eq!(client.environment().len(), 1);
    }

    #[test]
    fn only_a_servers_failure_is_collateral() {
        assert!(is_collateral(
            "RuntimeError: CUDA error: the remote procedural call between the MPS server and \
             the MPS client failed\n"
        ));
        assert!(!is_collateral(
            "CUDA error: an illegal memory access was encountered"
        ));
    }
}
