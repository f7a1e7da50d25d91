//! What the tests share: a state folder of their own, and processes that wait
//! for each other without sleeping.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use packhorse_test_parts::wait_for_change;
use tempfile::TempDir;

/// A state folder, and a folder to work in.
pub struct World {
    folder: TempDir,
}

/// What a finished `packhorse` left.
#[derive(Debug)]
pub struct Done {
    /// Its exit status; 128 + the signal if one ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl World {
    /// An empty one.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fs_err::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    /// The folder that commands run in.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The state folder. It need not exist.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The folder in which runs tell each other what they hold. It need not exist.
    pub fn leases(&self) -> PathBuf {
        self.folder.path().join("leases")
    }

    /// The database in the state folder. It must exist.
    pub fn database(&self) -> PathBuf {
        let is_one = |path: &PathBuf| {
            fs_err::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3"))
        };
        let files = fs_err::read_dir(self.home()).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        files.find(is_one).expect("the database")
    }

    /// Writes a file in the folder that commands run in.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs_err::write(&path, text).unwrap();
        path
    }

    /// Makes the state folder, for its owner alone.
    pub fn make_home(&self) {
        let mut builder = std::fs::DirBuilder::new();
        let builder = std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(self.home()).unwrap();
    }

    /// Reads a file from there; nothing if there is none.
    pub fn read(&self, name: &str) -> String {
        let bytes = fs_err::read(self.work().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Makes a named pipe there.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.work().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        path
    }

    /// The binary, in this world and nobody else's environment.
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        self.program(env!("CARGO_BIN_EXE_packhorse"), words)
    }

    /// Any program in this world.
    pub fn program<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("PACKHORSE_HOME", self.home())
            .env("PACKHORSE_LEASES", self.leases())
            .env("TZ", "UTC")
            // What is told is written, however slow the disk.
            .env("PACKHORSE_STORE_PATIENCE", "1h")
            // A test that wants GPUs brings its own.
            .env("PACKHORSE_NVML_LIBRARY", "none")
            .env("PACKHORSE_SYSFS", self.folder.path().join("no-sys"))
            .stdin(Stdio::null());
        command
    }

    /// Runs `packhorse` to its end.
    pub fn packhorse<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Done {
        finish(self.command(words))
    }

    /// Runs `packhorse` to its end with this standard input.
    pub fn packhorse_with<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        input: impl AsRef<[u8]>,
    ) -> Done {
        finish_with(self.command(words), input)
    }

    /// Starts `packhorse` with pipes to talk to it.
    pub fn start<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.command(words))
    }
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Done {
    done(&command.output().expect("it can be started"))
}

/// Runs a command to its end with this standard input.
pub fn finish_with(mut command: Command, input: impl AsRef<[u8]>) -> Done {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // A thread of its own: it may answer before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // It may also end without reading everything.
    let _ = writer.join().unwrap();
    done(&output)
}

fn done(output: &std::process::Output) -> Done {
    use std::os::unix::process::ExitStatusExt as _;
    let status = output.status;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Done {
        code: code.unwrap(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A `packhorse` that is still at work.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    seen: String,
    seen_errors: String,
}

impl Running {
    /// Starts it with pipes to talk to it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            stderr: BufReader::new(child.stderr.take().unwrap()),
            child,
            seen: String::new(),
            seen_errors: String::new(),
        }
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends text to its standard input.
    pub fn send(&mut self, text: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(text.as_ref()).unwrap();
        stdin.flush().unwrap();
    }

    /// Closes its standard input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Reads its standard output up to a line that holds this text.
    pub fn wait_for(&mut self, text: &str) -> String {
        read_to(&mut self.stdout, &mut self.seen, text).unwrap_or_else(|| {
            let _ = std::io::Read::read_to_string(&mut self.stderr, &mut self.seen_errors);
            panic!("it ended without saying `{text}`:\n{}{}", self.seen, self.seen_errors);
        })
    }

    /// Reads its standard error up to a line that holds this text.
    pub fn wait_for_error(&mut self, text: &str) -> String {
        read_to(&mut self.stderr, &mut self.seen_errors, text)
            .unwrap_or_else(|| panic!("it ended without saying `{text}`:\n{}", self.seen_errors))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end. Its standard input is closed first.
    pub fn finish(mut self) -> Done {
        use std::io::Read as _;
        use std::os::unix::process::ExitStatusExt as _;
        self.stdin = None;
        let mut rest = Vec::new();
        let mut errors = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| self.stderr.read_to_end(&mut errors));
            let _ = self.stdout.read_to_end(&mut rest);
        });
        let status = self.child.wait().unwrap();
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        Done {
            code: code.unwrap(),
            stdout: self.seen.clone() + &String::from_utf8_lossy(&rest),
            stderr: self.seen_errors.clone() + &String::from_utf8_lossy(&errors),
        }
    }
}

/// Reads up to a line that holds this text. `None`: it has ended without.
fn read_to(from: &mut impl BufRead, seen: &mut String, text: &str) -> Option<String> {
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line).unwrap() == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        *seen += &line;
        if line.contains(text) {
            return Some(line);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Blocks until somebody opens the named pipe to read, and lets them go on.
pub fn release(fifo: &Path) {
    drop(fs_err::OpenOptions::new().write(true).open(fifo).unwrap());
}

/// Blocks until somebody writes a line to the named pipe, and returns it.
pub fn receive(fifo: &Path) -> String {
    fs_err::read_to_string(fifo).unwrap()
}

impl Done {
    /// The JSON it printed.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).expect("it is JSON")
    }

    /// The JSON objects it printed, one a line.
    pub fn events(&self) -> Vec<serde_json::Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("every line is a JSON object"))
            .collect()
    }
}

/// Whether a process is there. One that has ended and was not yet waited for is
/// not.
pub fn is_alive(pid: &str) -> bool {
    let stat = fs_err::read_to_string(format!("/proc/{}/stat", pid.trim()));
    // The state follows the name, which is in brackets.
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

impl World {
    /// Makes a named pipe for tasks to wait at with `read x < NAME`.
    pub fn gate(&self, name: &str) -> Gate {
        let pipe = self.fifo(name);
        // For reading too: so it opens at once, and what was let through early
        // stays in the pipe.
        let file = fs_err::OpenOptions::new().read(true).write(true).open(pipe);
        Gate(file.unwrap())
    }
}

impl World {
    /// Why a task waits, once its run can be asked and has looked at the GPUs.
    pub fn why(&self, task: &str) -> String {
        // The run's socket and what the store knows, and the looks at pretended GPUs.
        wait_until_some(&[&self.home(), &self.work().join("state/looks")], || {
            let why = self.packhorse(["why", task]).stdout;
            let is_over = why.starts_with(&format!("task {task} is over"));
            assert!(!is_over, "it should wait: {why}");
            let waits = why.starts_with(&format!("{task} waits"));
            (waits && !why.contains("has not been looked at yet")).then_some(why)
        })
    }

    /// Waits until `packhorse gpus` shows this, which it reads from the leases.
    pub fn await_gpus(&self, text: &str) {
        wait_until(&self.leases(), || self.packhorse(["gpus"]).stdout.contains(text));
    }
}

/// Waits until this is so: it is looked at after each change below the folder.
pub fn wait_until(folder: &Path, mut is_so: impl FnMut() -> bool) {
    wait_until_some(&[folder], || is_so().then_some(()));
}

/// Waits until there is something to see: it is looked for after each change below one of the
/// folders.
pub fn wait_until_some<T>(folders: &[&Path], look: impl FnMut() -> Option<T>) -> T {
    wait_for_change(folders, None, look).expect("it is waited for without a deadline")
}

/// Where tasks wait. When it is dropped nobody waits any longer.
pub struct Gate(fs_err::File);

impl Gate {
    /// Lets so many tasks through, now or when they come.
    pub fn pass(&self, tasks: usize) {
        // `read` takes a byte at a time: each task gets one line of one byte.
        (&self.0).write_all(&vec![b'\n'; tasks]).unwrap();
    }
}

/// Tasks that meet: none of them goes on before all of them are there.
pub struct Meeting {
    came: BufReader<fs_err::File>,
    work: PathBuf,
}

/// What a task does that says these words, with its output too, and waits for the others. Each
/// waits at a gate of its own: who comes next may be faster than who may go.
pub fn telling(words: &str) -> String {
    format!(
        "said=$(echo {words}); echo $said; gate=gate.$PACKHORSE_TASK; mkfifo $gate; \
         echo $gate $said > came; read x < $gate"
    )
}

impl World {
    /// For tasks that do what [`telling`] says.
    pub fn meeting(&self) -> Meeting {
        let came = self.fifo("came");
        // For writing too: so it has no end while nobody writes.
        let came = fs_err::OpenOptions::new().read(true).write(true).open(came);
        Meeting { came: BufReader::new(came.unwrap()), work: self.work() }
    }
}

impl Meeting {
    /// Waits until so many tasks are there, lets them go on, and says who they are.
    pub fn of(&mut self, tasks: usize) -> Vec<String> {
        let who = (0..tasks).map(|_| {
            let mut line = String::new();
            self.came.read_line(&mut line).unwrap();
            let (gate, said) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            (gate.to_owned(), said.to_owned())
        });
        let (gates, who): (Vec<_>, _) = who.unzip();
        for gate in gates {
            fs_err::write(self.work.join(gate), "\n").unwrap();
        }
        who
    }
}

/// Runs a command whose reader has seen enough after the first line.
pub fn cut_short(mut command: Command) -> Done {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    Done { stdout: line, ..done(&child.wait_with_output().unwrap()) }
}
