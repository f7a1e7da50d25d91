//! The machines of a lab: each a daemon and what it has started, in namespaces of their own.

use std::ffi::OsStr;
use std::process::{Child, Stdio};

use fs_err::File;
use rustix::process::{Pid, Signal, kill_process};

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::keeper::Keeper;

/// A running daemon of Slurm.
pub struct Machine {
    /// `unshare`, which waits for the first process in the namespace.
    process: Child,
}

impl Machine {
    /// Starts a daemon, whose log has this name, in a machine of this name.
    /// The words of `prefix` begin it.
    pub fn start(
        keeper: &Keeper,
        folder: &Path,
        name: &str,
        log: &str,
        prefix: &[String],
        daemon: &[&str],
    ) -> Self {
        let stderr = File::create(folder.join(format!("log/{log}.stderr")));
        let stderr = stderr.expect("the folder of the logs is there");
        let mut command = keeper.enter(OsStr::new("unshare"));
        command.args(["--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]);
        command.args(prefix);
        command.args(["sh", "-c", include_str!("node.sh"), "node", name]);
        command.args(daemon);
        command.env("SLURM_CONF", folder.join("etc/slurm.conf"));
        command.current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(stderr.into_parts().0);
        // It should not die before the test that a Ctrl-C is meant for.
        command.process_group(0);
        Self { process: command.spawn().expect("a shell can be started") }
    }

    /// Whether its daemon is still running.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Ends it as a power failure would, and comes back when no process of it is left.
    pub fn kill(&mut self) {
        // The kernel ends a namespace's first process only after all others in it. Without
        // one, the machine is not up yet, or is dead already.
        match self.first_process() {
            Some(first) => {
                let _ = kill_process(first, Signal::KILL);
            }
            None => {
                let _ = self.process.kill();
            }
        }
        let _ = self.process.wait();
    }

    /// Tells its daemon to end, and nothing else on it.
    pub fn end_daemon(&self) {
        // It is the oldest child of the namespace's first process.
        let daemon = self.first_process().and_then(|first| {
            let first = first.as_raw_nonzero().get().cast_unsigned();
            first_child(first)
        });
        let daemon = daemon.expect("it runs");
        kill_process(daemon, Signal::TERM).expect("it is ours");
    }

    fn first_process(&self) -> Option<Pid> {
        first_child(self.process.id())
    }
}

fn first_child(id: u32) -> Option<Pid> {
    let children = fs_err::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    let first = children.split_whitespace().next()?;
    Pid::from_raw(first.parse().ok()?)
}
