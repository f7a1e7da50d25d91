//! Starts a program many times, a fixed number at a time, and prints how many a
//! second that makes: what the supervisor costs.
//!
//! ```text
//! cargo run --release -p packhorse-supervisor --example spawn -- 10000 2 /bin/true
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_model::{Command, OutputMode, ProcessEvent, RunId, TaskId};
use packhorse_supervisor::{Children, EndNotice, Job, StartResult, Supervisor, SupervisorSettings};
use rustix::event::{PollFd, PollFlags, poll};

#[expect(clippy::print_stdout, reason = "an example")]
fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        let argument = arguments.next();
        argument.map_or(Ok(default), |text| text.parse::<u32>())
    };
    let count = number(10_000).map_err(std::io::Error::other)?;
    let at_a_time = number(2).map_err(std::io::Error::other)?;
    let program = arguments.next().unwrap_or_else(|| "/bin/true".to_owned());
    let command = Arc::new(Command::Words(vec![program.into_bytes()]));

    packhorse_supervisor::request_short_slice();
    let mut supervisor = Supervisor::new(SupervisorSettings {
        environment: Vec::new(),
        hidden: Vec::new(),
        home_mark: "example".to_owned(),
        signal_mask: None,
        children: Children::All(EndNotice::Handle),
    })?;
    let environment = [("CUDA_VISIBLE_DEVICES".into(), "0".into())];
    let mut events = Vec::new();
    let (mut started, mut ended, mut running, mut failed) = (0, 0, 0, 0);
    let begin = Instant::now();
    while ended < count {
        while started < count && running < at_a_time {
            started += 1;
            running += 1;
            let start = supervisor.start(Job {
                task: TaskId::new(RunId(1), started),
                attempt: 1,
                command: Arc::clone(&command),
                preload: Vec::new(),
                folder: None,
                environment: environment.to_vec(),
                cores: Vec::new(),
                time_limit: None,
                grace: Duration::from_secs(10),
                output: OutputMode::Log,
                log: "/nonexistent/1.1.log".into(),
                own_log: None,
                hold_end: false,
            });
            if start == StartResult::Later {
                break;
            }
        }
        poll(&mut [PollFd::new(&supervisor, PollFlags::IN)], None)?;
        supervisor.drain(&mut events)?;
        for event in events.drain(..) {
            if let ProcessEvent::Ended(end) = event {
                ended += 1;
                running -= 1;
                failed += u32::from(!end.outcome.is_success());
            }
        }
    }
    let rate = f64::from(count) / begin.elapsed().as_secs_f64();
    println!("{rate:.0} a second, {failed} failed");
    Ok(())
}
