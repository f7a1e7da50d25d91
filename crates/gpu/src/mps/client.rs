use std::ffi::OsString;
use std::path::Path;

use packhorse_model::Bytes;

use super::{MEMORY_VARIABLE, PIPE_VARIABLE, THREADS_VARIABLE};
use crate::Percent;

/// The variables to set for a client of the daemon with this pipe folder: the share of
/// the GPU's threads that it may use (`None`: the daemon's default), and the memory that
/// it may use on its device (`None`: no limit), which CUDA respects since 11.5.
///
/// Besides them, its device must be named by UUID: a daemon that was started for one GPU
/// knows only that one, as number 0.
pub fn client_environment(
    pipes: &Path,
    threads: Option<Percent>,
    memory: Option<Bytes>,
) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![(PIPE_VARIABLE, pipes.as_os_str().to_owned())];
    if let Some(Percent(threads)) = threads {
        // With no threads at all, nothing would ever be computed.
        let threads = threads.clamp(1, 100).to_string();
        variables.push((THREADS_VARIABLE, threads.into()));
    }
    if let Some(Bytes(memory)) = memory {
        // Rounded up: a program that needs all it asked for must get it.
        let limit = format!("0={}M", memory.div_ceil(1 << 20));
        variables.push((MEMORY_VARIABLE, limit.into()));
    }
    variables
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
        for (memory, limit) in [(9 << 30, "0=9216M"), ((1 << 20) + 1, "0=2M")] {
            let variables =
                client_environment(Path::new("/run/mps"), Some(Percent(50)), Some(Bytes(memory)));
            assert_eq!(
                variables,
                [
                    ("CUDA_MPS_PIPE_DIRECTORY", "/run/mps".into()),
                    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50".into()),
                    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit.into()),
                ]
            );
        }
    }

    #[test]
    fn a_client_without_limits_gets_the_folder_only() {
        let variables = client_environment(Path::new("/run/mps"), None, None);
        assert_eq!(variables.len(), 1);
    }

    #[test]
    fn a_servers_failure_is_told_from_a_programs_own() {
        assert!(reports_server_failure(
            "RuntimeError: CUDA error: the remote procedural call between the MPS server and \
             the MPS client failed\n"
        ));
        assert!(!reports_server_failure("CUDA error: an illegal memory access was encountered"));
    }
}
