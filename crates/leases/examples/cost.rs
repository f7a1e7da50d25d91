//! What it costs to decide together with three other processes: to look and to
//! publish when nothing has changed, and when all of them have published.
//!
//! `cargo run --release -p packhorse-leases --example cost`

#![expect(clippy::print_stdout, reason = "a measurement is there to be read")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use packhorse_leases::{About, Held, Leases, total};
use packhorse_model::{Bytes, Milli};

const OTHERS: usize = 3;
const DEVICES: u64 = 8;
const ROUNDS: u64 = 1000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    if let Some(folder) = std::env::args_os().nth(1) {
        return other(Path::new(&folder));
    }
    let temporary = tempfile::tempdir_in("/dev/shm")?;
    let folder = temporary.path().join("leases");
    let mut leases = Leases::open(&folder, about())?;
    leases.listen()?;
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(Other::start(&folder)?);
    }
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for other in &mut others {
            other.publish()?;
        }
        let began = Instant::now();
        decide(&mut leases, 2 * round)?;
        busy.push(began.elapsed());
        let began = Instant::now();
        decide(&mut leases, 2 * round + 1)?;
        quiet.push(began.elapsed());
    }
    println!(
        "lock, others, publish, unlock with {OTHERS} others and {DEVICES} devices each, medians of \
         {ROUNDS}: {:.1?} if nobody else has published, {:.1?} if all have",
        median(quiet),
        median(busy)
    );
    for mut other in others {
        other.child.kill()?;
        other.child.wait()?;
    }
    Ok(())
}

fn decide(leases: &mut Leases, amount: u64) -> Outcome<()> {
    let mut guard = leases.lock()?;
    let known = total(guard.others()).len();
    if known != usize::try_from(DEVICES)? {
        return Err(format!("others hold {known} devices").into());
    }
    guard.publish(&held(amount))?;
    Ok(())
}

/// Publishes something new for each line it reads.
fn other(folder: &Path) -> Outcome<()> {
    let mut leases = Leases::open(folder, about())?;
    for (round, line) in (0..).zip(std::io::stdin().lines()) {
        line?;
        leases.lock()?.publish(&held(round))?;
        println!("done");
    }
    Ok(())
}

struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(folder: &Path) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            child,
            output: BufReader::new(output),
        })
    }

    fn publish(&mut self) -> Outcome<()> {
        let mut input = self.child.stdin.as_ref().ok_or("no input")?;
        input.write_all(b"\n")?;
        self.output.read_line(&mut String::new())?;
        Ok(())
    }
}

fn about() -> About {
    About {
        user: "somebody".to_owned(),
        run: None,
        command: "packhorse run --vram 9G".to_owned(),
    }
}

fn held(amount: u64) -> Vec<Held> {
    let one = |device| Held {
        device: format!("GPU-01234567-89ab-cdef-0123-{device:012}").into(),
        memory: Bytes(amount << 20),
        share: Milli(500),
        attempts: 2,
        whole: false,
    };
    (0..DEVICES).map(one).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
