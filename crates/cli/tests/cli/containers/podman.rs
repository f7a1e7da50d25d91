//! Containers of podman whose files are the host's, read-only but for the world's folder.
//!
//! They need no image and no network. Podman keeps what it knows in a folder of its own.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{Done, Running, World, finish};

/// crun refuses a machine that has both hierarchies of cgroups, so the second one is hidden
/// from it in a mount namespace of its own.
const PODMAN: &str = "umount /sys/fs/cgroup/unified 2>/dev/null; exec podman \"$@\"";

/// Podman, and the world whose folder its containers share.
pub struct Podman<'a> {
    world: &'a World,
    folder: TempDir,
}

/// A container that runs.
pub struct Container<'a> {
    podman: &'a Podman<'a>,
    name: &'static str,
    running: Option<Running>,
}

impl<'a> Podman<'a> {
    pub fn new(world: &'a World) -> Self {
        Self { world, folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", PODMAN, "podman"]);
        command.arg("--root").arg(folder.join("store"));
        command.arg("--runroot").arg(folder.join("run"));
        command.args(["--storage-driver", "vfs"]).args(words);
        command
    }

    /// A container that does this: a command in the host's files. `options` are podman's own.
    fn run(&self, name: &str, options: &[&str], words: &[&str]) -> Command {
        let base = self.world.work().parent().unwrap().display().to_string();
        let binary = env!("CARGO_BIN_EXE_packhorse");
        let mut command = self.command(&["run", "--rm", "--init=false", "--network", "none"]);
        command.args(["--name", name, "--hostname", name]);
        // Podman's own are more than a sandbox may have.
        command.args(["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]);
        command.args(["--volume", &format!("{base}:{base}")]);
        command.args(["--volume", &format!("{binary}:{binary}:ro")]);
        command.args(["--workdir", &self.world.work().display().to_string()]);
        // Without cgroups, unless the test limits something.
        if !options.contains(&"--pids-limit") {
            command.arg("--cgroups=disabled");
        }
        let own = self.world.command([""; 0]);
        for (key, value) in own.get_envs() {
            if let Some(value) = value {
                let (key, value) = (key.display(), value.display());
                command.args(["--env", &format!("{key}={value}")]);
            }
        }
        command.args(options).args(["--rootfs", "/:O"]).args(words);
        command
    }

    /// Runs `packhorse` to its end in a container.
    pub fn packhorse(&self, name: &'static str, options: &[&str], words: &[&str]) -> Done {
        let words = [&[env!("CARGO_BIN_EXE_packhorse")], words].concat();
        finish(self.run(name, options, &words))
    }

    /// Starts `packhorse` as the first process of a container.
    pub fn start(&'a self, name: &'static str, options: &[&str], words: &[&str]) -> Container<'a> {
        self.start_program(name, options, &[&[env!("CARGO_BIN_EXE_packhorse")], words].concat())
    }

    /// Starts any program of the host as the first process of a container.
    pub fn start_program(
        &'a self,
        name: &'static str,
        options: &[&str],
        words: &[&str],
    ) -> Container<'a> {
        let running = Running::start(self.run(name, options, words));
        Container { podman: self, name, running: Some(running) }
    }

    /// Does something with a container that runs, and returns how that ended.
    pub fn with(&self, words: &[&str]) -> Done {
        finish(self.command(words))
    }
}

impl Container<'_> {
    /// Reads its standard output up to a line that holds this text.
    pub fn wait_for(&mut self, text: &str) -> String {
        self.running.as_mut().expect("it is not finished").wait_for(text)
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Done {
        self.running.take().expect("it is finished once").finish()
    }

    /// Does something in the container beside its first process.
    pub fn exec(&self, words: &[&str]) -> Done {
        self.podman.with(&[&["exec", self.name], words].concat())
    }

    /// Sends its first process a signal.
    pub fn signal(&self, signal: &str) {
        let done = self.podman.with(&["kill", "--signal", signal, self.name]);
        assert_eq!(done.code, 0, "{done:?}");
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind: podman's own process is not the container.
        self.podman.with(&["rm", "--force", "--time", "0", "--ignore", self.name]);
    }
}
