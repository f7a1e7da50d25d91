use std::ffi::OsString;
use std::path::Path;

use packhorse_model::Bytes;

use super::{MEMORY_VARIABLE, PIPE_VARIABLE, THREADS_VARIABLE};
use crate::Percent;

/// What a client of a daemon finds in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpsClient<'a> {
    /// The daemon's pipe folder.
    pub pipes: &'a Path,
    /// The share of the GPU's threads that it may use. `None`: the daemon's default.
    pub threads: Option<Percent>,
    /// The memory that it may use on each of its devices, in order. Empty: no limit.
    /// CUDA respects it since 11.5.
    pub memory: &'a [Bytes],
}

impl MpsClient<'_> {
    /// The variables to set. Besides them, its devices must be named by UUID: a
    /// daemon that was started for one GPU knows only that one, as number 0.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(PIPE_VARIABLE, self.pipes.as_os_str().to_owned())];
        if let Some(Percent(threads)) = self.threads {
            // With no threads at all, nothing would ever be computed.
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

/// CUDA's errors in a program whose server has died. They do not mean that the
/// program did anything wrong.
const SERVER_FAILURES: [&str; 8] = [
    "the remote procedural call between the MPS server and the MPS client failed",
    "MPS client failed to connect to the MPS control daemon or the MPS server",
    "the MPS server is not ready to accept new MPS client requests",
    "CUDA_ERROR_MPS_RPC_FAILURE",
    "CUDA_ERROR_MPS_CONNECTION_FAILED",
    "CUDA_ERROR_MPS_SERVER_NOT_READY",
    "cudaErrorMpsRpcFailure",
    "cudaErrorMpsServerNotReady",
];

/// Whether a program's output says that its server has failed.
pub fn reports_server_failure(output: &str) -> bool {
    SERVER_FAILURES.iter().any(|text| output.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_given_by_the_index_that_the_client_sees() {
        let client = MpsClient {
            pipes: Path::new("/run/mps"),
            threads: Some(Percent(50)),
            memory: &[Bytes(9 << 30), Bytes((1 << 20) + 1)],
        };
        let variables: Vec<(&str, String)> = client
            .environment()
            .into_iter()
            .map(|(name, value)| (name, value.into_string().unwrap()))
            .collect();
        assert_eq!(
            variables,
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
    fn a_client_without_limits_gets_the_folder_only() {
        let client = MpsClient {
            pipes: Path::new("/run/mps"),
            threads: None,
            memory: &[],
        };
        assert_eq!(client.environment().len(), 1);
    }

    #[test]
    fn a_servers_failure_is_told_from_a_programs_own() {
        assert!(reports_server_failure(
            "RuntimeError: CUDA error: the remote procedural call between the MPS server and \
             the MPS client failed\n"
        ));
        assert!(!reports_server_failure(
            "CUDA error: an illegal memory access was encountered"
        ));
    }
}
