//! The processes that make a lab's namespaces and remove everything at the end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fs_err::File;

/// Where programs are looked for: what a user's PATH lacks is in the folders for root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The process that outlives the test's, to remove what the lab has made.
pub struct Keeper {
    process: Child,
    holder: u32,
}

impl Keeper {
    /// Makes the namespaces of a lab in this folder, with this root folder or this machine's.
    /// They have a network of their own, without processes yet.
    pub fn start(folder: &Path, root: Option<&Path>) -> Result<Self, String> {
        let path = folder.join("log/keeper.log");
        let log = File::create(&path).map_err(|error| error.to_string())?;
        let process = Command::new("/bin/sh")
            .args(["-c", include_str!("keeper.sh"), "keeper"])
            .arg(folder)
            .arg(root.unwrap_or(Path::new("")))
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.into_parts().0)
            // Ctrl-C, and who kills a test that takes too long, mean the test: this process
            // is needed after it.
            .process_group(0)
            .spawn();
        let mut process = process.map_err(|error| format!("cannot start the keeper: {error}"))?;

        let stdout = process.stdout.take().expect("it is a pipe");
        let mut keeper = Self { process, holder: 0 };
        // No line is what a failure looks like, too.
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        keeper.holder = line.trim_end().parse().map_err(|_| {
            let why = fs_err::read_to_string(path).unwrap_or_default();
            format!("the lab's namespaces could not be made:\n{why}")
        })?;
        Ok(keeper)
    }

    /// Whether somebody in the lab listens on this port.
    pub fn listens(&self, port: u16) -> bool {
        // Lines such as `0: 00000000:1AA1 00000000:0000 0A …`, where 0A is the listening state.
        let address = format!(":{port:04X}");
        ["tcp", "tcp6"].iter().any(|table| {
            let table = fs_err::read_to_string(format!("/proc/{}/net/{table}", self.holder));
            table.unwrap_or_default().lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                words.next().is_some_and(|local| local.ends_with(&address))
                    && words.nth(1) == Some("0A")
            })
        })
    }

    /// A command that enters the lab and becomes this program, with the same process id.
    ///
    /// It keeps the caller's process namespace, as entering another needs one more process in
    /// between, which would get the signals that are meant for the program.
    pub fn enter(&self, program: &OsStr) -> Command {
        let mut command = Command::new("/bin/sh");
        // The shell knows in which folder it was started; entering forgets it.
        let enter =
            "exec nsenter --target \"$0\" --mount --uts --ipc --net --wdns=\"$PWD\" -- \"$@\"";
        command.args(["-c", enter]);
        command.arg(self.holder.to_string());
        command.arg(program);
        command.env_clear();
        command.env("PATH", PATH);
        command
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Until all is removed. There is nobody to tell if that fails.
        let _ = self.process.wait();
    }
}
