//! A shared Slurm node: how long a job waits for its prolog and epilog.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use packhorse_slurm_lab::{LabSettings, SlurmLab};
use packhorse_test_parts::Part;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::run;
use super::report::Section;
use super::statistics::{Measured, median, ms};

const ROUNDS: usize = 40;

/// How many jobs are on the node already.
const JOBS: u32 = 20;

/// How many prologs at once.
const AT_ONCE: u32 = 200;

/// Their jobs.
const MANY: std::ops::Range<u32> = 2000..2000 + AT_ONCE;

/// Any character devices do for GPUs.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"];

/// What the original's prolog does, as its description has it: removes links whose job is
/// gone, counts the jobs on each GPU, takes the one with the fewest, and writes a link to the
/// job's cgroup and a file with the rule for its device.
const PROLOG: &str = r#"#!/bin/bash
export PATH=/usr/bin:/bin
[ -n "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" ] || exit 0
state=${0%/*}/bash-state
mkdir -p "$state"
for link in "$state"/*_gpu*; do
    [ -L "$link" ] && [ ! -e "$link" ] && rm -f "$link"
done
least=
for gpu in 0 1 2 3; do
    count=$(ls "$state" | grep -c "_gpu$gpu\$")
    if [ -z "$least" ] || [ "$count" -lt "$least" ]; then
        least=$count
        chosen=$gpu
    fi
done
user=$(id -nu "$SLURM_JOB_UID" 2>/dev/null || echo "$SLURM_JOB_UID")
ln -s "${0%/*}" "$state/${user}_${SLURM_JOB_ID}_gpu$chosen"
echo "c 195:$chosen rw" >"$state/${SLURM_JOB_UID}_$SLURM_JOB_ID"
"#;

const EPILOG: &str = r#"#!/bin/bash
export PATH=/usr/bin:/bin
[ -n "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" ] || exit 0
state=${0%/*}/bash-state
user=$(id -nu "$SLURM_JOB_UID" 2>/dev/null || echo "$SLURM_JOB_UID")
rm -f "$state/${user}_${SLURM_JOB_ID}"_gpu*
rm -f "$state/${SLURM_JOB_UID}_$SLURM_JOB_ID"
"#;

/// One round: a job's prolog and its epilog, in milliseconds.
type Round = (f64, f64);

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let folder = folder.path();
    configure(folder, "node", 100)?;
    configure(folder, "asking", 1280)?;
    configure(folder, "many", 1280)?;
    script(&folder.join("prolog"), PROLOG)?;
    script(&folder.join("epilog"), EPILOG)?;
    let with = |config: &str, verb: &str, job: u32| -> Result<Command> {
        let mut command = bench.packhorse(&folder.join("home"))?;
        command.args(["node", verb, "--config"]);
        command.arg(folder.join(config).with_extension("toml"));
        Ok(job_of(command, job))
    };
    let ours = |verb: &str, job: u32| with("node", verb, job);
    let asking = |verb: &str, job: u32| {
        // Nobody else has asked lately.
        let _ = fs_err::remove_file(folder.join("asking/queue"));
        with("asking", verb, job)
    };
    let bash = |verb: &str, job: u32| Ok(job_of(Command::new(folder.join(verb)), job));
    for job in 1..=JOBS {
        run(&mut ours("prolog", job)?)?;
        run(&mut with("asking", "prolog", job)?)?;
        run(&mut bash("prolog", job)?)?;
    }
    let round = |command: &dyn Fn(&str, u32) -> Result<Command>| -> Result<Round> {
        let prolog = run(&mut command("prolog", 1000)?)?;
        let epilog = run(&mut command("epilog", 1000)?)?;
        ensure!(prolog.status.success() && epilog.status.success(), "it failed");
        Ok((ms(prolog.wall), ms(epilog.wall)))
    };
    let contestants: Vec<Contestant<'_, Round>> = vec![
        Contestant::new("packhorse", bench.rounds(ROUNDS), || round(&ours)),
        Contestant::new("packhorse, which has to ask", bench.rounds(ROUNDS), || round(&asking)),
        Contestant::new("scripts in Bash", bench.rounds(ROUNDS), || round(&bash)),
    ];
    let rounds = interleave(&contestants)?;

    let mut section = Section::new("node: prolog and epilog of a shared Slurm node");
    section.part(
        format!(
            "One job's prolog and epilog, with {JOBS} jobs on four GPUs. The scripts do what the \
             original's description says: no lock, no shares, no limits. A node whose whole is \
             at most 100 `mps` need not ask Slurm; one with 1280 asks before each prolog and \
             epilog here, and many at once have to ask, too: a script that stands in for `squeue`."
        ),
        ["program", "prolog", "epilog"],
    );
    let middle = |rounds: &[Round], part: fn(&Round) -> f64| {
        Measured(median(rounds.iter().map(part)), 2, " ms")
    };
    for (contestant, rounds) in contestants.iter().zip(&rounds) {
        let (prolog, epilog) = (middle(rounds, |round| round.0), middle(rounds, |round| round.1));
        section.row([&contestant.name, &prolog, &epilog]);
    }
    if let Some(question) = real_question(bench.rounds(ROUNDS))? {
        section.row([&"`squeue` of a real Slurm, alone", &question, &"-"]);
    }
    let packhorse = &rounds[0];
    section.less_than("prolog: less than 10 ms", middle(packhorse, |round| round.0), 10.0);
    section.less_than("epilog: less than 10 ms", middle(packhorse, |round| round.1), 10.0);

    let took = at_once(&|job| with("many", "prolog", job))?;
    section.less_than(format!("{AT_ONCE} prologs at once: less than 2 s"), took, 2.0);
    let given = MANY.filter(|job| folder.join(format!("many/jobs/{job}")).exists());
    let given = given.count();
    section.target(
        "each of them is given its share",
        format!("{given} of {AT_ONCE}"),
        given == AT_ONCE as usize,
    );
    Ok(section)
}

/// How long many prologs take that are started at once.
fn at_once(prolog: &dyn Fn(u32) -> Result<Command>) -> Result<Measured> {
    let start = Instant::now();
    let spawn = |job| -> Result<Child> {
        let mut command = prolog(job)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.spawn()?)
    };
    let children: Vec<Child> = MANY.map(spawn).collect::<Result<_>>()?;
    for mut child in children {
        ensure!(child.wait()?.success(), "a prolog failed");
    }
    Ok(Measured(start.elapsed().as_secs_f64(), 2, " s"))
}

/// How long a real Slurm takes to say which jobs are on a node, where there is one.
fn real_question(rounds: usize) -> Result<Option<Measured>> {
    if Part::Slurm.missing().is_some() {
        return Ok(None);
    }
    let lab = SlurmLab::start(LabSettings { nodes: 1, ..LabSettings::default() });
    let ask = || {
        let mut squeue = lab.command("squeue");
        squeue.args(["-h", "-a", "-r", "-w", "n1", "-o", "%A|%U|%T|%b"]);
        run(squeue.stdout(Stdio::null())).map(|finished| ms(finished.wall))
    };
    let times: Vec<f64> = (0..rounds).map(|_| ask()).collect::<Result<_>>()?;
    Ok(Some(Measured(median(times), 2, " ms")))
}

/// A job that asks for 1 of 100.
fn job_of(mut command: Command, job: u32) -> Command {
    command
        .env_clear()
        .env("SLURM_JOB_ID", job.to_string())
        .env("SLURM_JOB_UID", "1000")
        .env("SLURM_JOB_USER", "alice")
        .env("SLURMD_NODENAME", "n1")
        .env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1");
    command
}

/// A node in the folder, with so many `mps`.
fn configure(folder: &Path, name: &str, count: u32) -> Result<()> {
    let bin = folder.join("bin");
    fs_err::create_dir_all(&bin)?;
    // All jobs are on the node, so that none is forgotten.
    let jobs = (1..=JOBS).chain([1000]).chain(MANY);
    let queue: Vec<String> = jobs.map(|job| format!("{job}|1000|RUNNING|gres:mps:6")).collect();
    fs_err::write(bin.join("queue"), queue.join("\n"))?;
    let squeue = format!("#!/bin/sh\nexec /bin/cat {}\n", bin.join("queue").display());
    script(&bin.join("squeue"), &squeue)?;
    for name in ["scontrol", "scancel"] {
        script(&bin.join(name), "#!/bin/false\n")?;
    }
    let mut text = format!(
        "count = {count}\nstate = \"{}\"\nscontrol = \"{}\"\nmps.servers = false\n",
        folder.join(name).display(),
        bin.join("scontrol").display()
    );
    for file in DEVICES {
        text += &format!("[[gpus]]\nfile = \"{file}\"\nmemory = \"24G\"\n");
    }
    fs_err::write(folder.join(name).with_extension("toml"), text)?;
    Ok(())
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs_err::write(path, text)?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
