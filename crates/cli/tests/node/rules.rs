//! Who may ask: on the node, and in the filters.

use packhorse_test_parts::needs;

use crate::fake_slurm::{FakeNode, finish};
use crate::lab::{GAMES, NOBODY, NodeLab, NodeSettings};

const RULES: &str = "[[allow]]\nreservations = [\"jupyterhub_course_*\"]\nmost = 64\n[[allow]]\naccounts = [\"staff\"]\n";

#[test]
fn a_job_that_the_rules_do_not_admit_is_ended_on_the_node() {
    let node = FakeNode::new(RULES);
    let run = |job: u32, mps: u64, reservation: Option<&str>, account: Option<&str>| {
        let mut command = node.command("prolog", job, Some(mps));
        command.envs(reservation.map(|name| ("SLURM_JOB_RESERVATION", name)));
        command.envs(account.map(|name| ("SLURM_JOB_ACCOUNT", name)));
        finish(&mut command)
    };
    assert_eq!(run(1, 64, Some("jupyterhub_course_ml"), None).stderr, "");
    assert_eq!(run(2, 640, None, Some("staff")).stderr, "");
    assert_eq!(node.gpus(2).len(), 2);
    for (job, reservation, account) in [(3, None, None), (4, Some("other"), Some("students"))] {
        let done = run(job, 64, reservation, account);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains("not allowed"), "{done:?}");
        assert!(node.asked().contains(&format!("scancel {job}")), "{}", node.asked());
        // If it starts all the same, it has no GPU and says why.
        assert_eq!(node.gpus(job), [0_u32; 0]);
        let text = fs_err::read_to_string(node.orders(job)).unwrap();
        assert!(text.contains("\nrefused mps is not allowed"), "{text}");
        assert!(!text.contains("allow 1 "), "{text}");
        assert!(text.contains("deny 1 3"), "{text}");
    }
    let done = run(5, 65, Some("jupyterhub_course_ml"), None);
    assert!(done.stderr.contains("at most mps:64"), "{done:?}");
    let status = node.status();
    assert_eq!(status["refused"].as_array().unwrap().len(), 3, "{status}");
}

/// The rule of the seed, as it is written in our configuration.
const SEED: &str = "[mps]\nservers = false\n\n[[allow]]\nreservations = [\n  \"*jhl_homework_gpu*\", # homework\n  '*jupyterhub_course_*',\n]\n";

/// Which jobs the seed's own snippet accepts: a reservation and whether it may use mps.
const SEEN: [(Option<&str>, bool); 5] = [
    (None, false),
    (Some("jhl_homework_gpu"), true),
    (Some("jupyterhub_course_ml"), true),
    (Some("2026_jupyterhub_course_x"), true),
    (Some("maintenance"), false),
];

fn seed_lab(filter: &str, line: &str) -> NodeLab {
    let lab = NodeLab::start(NodeSettings {
        more: SEED,
        slurm_conf: &[line],
        // As an admin is told to: a file of the site's that runs ours.
        files: vec![
            (filter.to_owned(), calling(filter)),
            (format!("our_{filter}"), filter_text(filter)),
        ],
        ..NodeSettings::default()
    });
    let reservations = SEEN.iter().filter_map(|(reservation, _)| *reservation);
    for name in reservations.filter(|_| filter != "unused.lua") {
        reserve(&lab, name);
    }
    lab
}

fn reserve(lab: &NodeLab, name: &str) {
    let mut scontrol = lab.slurm.command("scontrol");
    scontrol.args(["create", "reservation", "nodes=n1", "starttime=now"]);
    scontrol.args(["duration=60", "users=nobody", "flags=maint,ignore_jobs,overlap"]);
    lab.slurm.output(scontrol.arg(format!("reservationname={name}")));
}

/// What `packhorse node install` says that a site's own file needs.
fn calling(name: &str) -> String {
    let mut install = std::process::Command::new(env!("CARGO_BIN_EXE_packhorse"));
    install.args(["node", "install", "--dry-run", "--folder", "{lab}/etc"]);
    let text = finish(install.env("PACKHORSE_NVML_LIBRARY", "none")).stdout;
    let (_, lines) = text.split_once(&format!("\n# {name}\n")).unwrap_or_default();
    let lines = lines.split("\n# ").next().unwrap_or_default();
    let lines = lines.split("\n\nThen ").next().unwrap_or_default();
    lines.replace(&format!("/{name}"), &format!("/our_{name}"))
}

/// What `packhorse node install` writes, for the lab's configuration.
pub fn filter_text(name: &str) -> String {
    if name == "unused.lua" {
        return String::new();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut install = std::process::Command::new(env!("CARGO_BIN_EXE_packhorse"));
    install.args(["node", "install", "--folder"]).arg(folder.path());
    install.env("PACKHORSE_NVML_LIBRARY", "none");
    assert_eq!(finish(&mut install).code, Some(0));
    let text = fs_err::read_to_string(folder.path().join(name)).unwrap();
    text.replace(&folder.path().display().to_string(), "{lab}/etc")
}

fn submits(lab: &NodeLab, options: &[&str]) -> (bool, String) {
    let mut sbatch = lab.by(NOBODY, "sbatch");
    sbatch.args(["--parsable", "--mem=50", "--output=/dev/null", "--wrap=true"]).args(options);
    let done = finish(&mut sbatch);
    (done.code == Some(0), done.stderr)
}

fn the_filter_does_as_the_seeds(lab: &NodeLab) {
    for (reservation, may) in SEEN {
        let reservation = reservation.map(|name| format!("--reservation={name}"));
        let options: Vec<&str> =
            ["--gres=mps:16"].into_iter().chain(reservation.as_deref()).collect();
        let (accepted, why) = submits(lab, &options);
        assert_eq!(accepted, may, "{options:?}: {why}");
        if !may {
            assert!(why.contains("packhorse: mps is not allowed"), "{why}");
        }
    }
    // Everything else is as before.
    for options in [&["--gres=gpu:1"][..], &[]] {
        let (accepted, why) = submits(lab, options);
        assert!(accepted, "{options:?}: {why}");
    }
}

#[test]
fn cli_filter_accepts_and_refuses_what_the_seeds_does() {
    needs!(Slurm);
    the_filter_does_as_the_seeds(&seed_lab("cli_filter.lua", "CliFilterPlugins=cli_filter/lua"));
}

#[test]
fn job_submit_accepts_and_refuses_what_the_seeds_does() {
    needs!(Slurm);
    the_filter_does_as_the_seeds(&seed_lab("job_submit.lua", "JobSubmitPlugins=lua"));
}

#[test]
fn where_there_is_no_filter_the_node_ends_the_job() {
    needs!(Slurm);
    let lab = seed_lab("unused.lua", "PriorityType=priority/basic");
    let job = lab.submit_lasting(NOBODY, 64);
    lab.slurm.wait_for_job(&job, "CANCELLED");
    let mut scontrol = lab.slurm.command("scontrol");
    let text = lab.slurm.output(scontrol.args(["show", "job", &job]));
    assert!(text.contains("packhorse: mps is not allowed"), "{text}");
    assert!(!lab.slurm.node_state("n1").contains("DRAIN"));
    // The node goes on with others.
    reserve(&lab, "jhl_homework_gpu");
    let allowed = lab.submit(NOBODY, &["--gres=mps:64", "--reservation=jhl_homework_gpu"], "true");
    lab.slurm.wait_for_job(&allowed, "COMPLETED");
}

/// The snippet of the seed, as it is there.
const SNIPPET: &str = r#"
if options.gres ~= nil and string.match(options.gres, "mps") then
	if options.reservation == nil then
		slurm.log_info("GRES option:'%s' not allowed", options.gres)
		return slurm.ERROR
	else
		if not(string.match(options.reservation, "jhl_homework_gpu") or string.match(options.reservation, "jupyterhub_course_")) then
			slurm.log_info("GRES option:'%s' not allowed in this reservation:'%s'", options.gres, options.reservation)
			return slurm.ERROR
		end
	end
end
"#;

#[test]
fn our_filter_and_the_seeds_own_say_the_same_of_the_same_jobs() {
    needs!(Slurm);
    let both = format!(
        "dofile(\"{{lab}}/etc/our_cli_filter.lua\")\n\
         local function seed(options)\n{SNIPPET}\nreturn slurm.SUCCESS\nend\n\
         function slurm_cli_pre_submit(options, offset)\n\
         slurm.log_error(\"ours %d seeds %d\", packhorse.check(options), seed(options))\n\
         return slurm.ERROR\nend\n"
    );
    let files = vec![
        ("cli_filter.lua".to_owned(), both),
        ("our_cli_filter.lua".to_owned(), filter_text("cli_filter.lua")),
    ];
    let lab = NodeLab::start(NodeSettings {
        more: SEED,
        slurm_conf: &["CliFilterPlugins=cli_filter/lua"],
        files,
        ..NodeSettings::default()
    });
    let gres = [
        None,
        Some("gpu:1"),
        Some("gpu:titanrtx:1"),
        Some("mps"),
        Some("mps:16"),
        Some("mps:titanrtx:16"),
        Some("gpu:1,mps:16"),
    ];
    let more = ["jupyterhub", "JHL_homework_gpu", "x_jhl_homework_gpu_y", "jupyterhub_course_"];
    let reservations = SEEN.iter().map(|(reservation, _)| *reservation);
    let reservations: Vec<_> = reservations.chain(more.map(Some)).collect();
    let (mut accepted, mut refused) = (0, 0);
    for gres in gres {
        for reservation in &reservations {
            let gres = gres.map(|gres| format!("--gres={gres}"));
            let reservation = reservation.map(|name| format!("--reservation={name}"));
            let options: Vec<&str> =
                gres.as_deref().into_iter().chain(reservation.as_deref()).collect();
            let (_, said) = submits(&lab, &options);
            if said.contains("ours 0 seeds 0") {
                accepted += 1;
            } else {
                refused += 1;
            }
            let same = said.contains("ours 0 seeds 0") || said.contains("ours -1 seeds -1");
            assert!(same, "{options:?}: {said}");
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} {refused}");
}

#[test]
fn a_filter_that_cannot_read_its_rules_refuses_mps_and_nothing_else() {
    needs!(Slurm);
    let lab = seed_lab("cli_filter.lua", "CliFilterPlugins=cli_filter/lua");
    let refuses = |told: &str| {
        let options = ["--gres=mps:16", "--reservation=jhl_homework_gpu"];
        let (accepted, why) = submits(&lab, &options);
        assert!(!accepted && why.contains("mps is not available"), "{told}: {why}");
        assert!(why.contains(told), "{told}: {why}");
        let (accepted, why) = submits(&lab, &["--gres=gpu:1"]);
        assert!(accepted, "{why}");
    };
    let config = lab.folder().join("etc/node.toml");
    let whole = fs_err::read_to_string(&config).unwrap();
    let rules = "[[allow]]\nreservations = [";
    assert!(whole.contains(rules));
    // All of them are TOML, and the node reads them.
    for other in [
        "[[\"allow\"]]\nreservations = [",
        "[[allow]]\n\"reservations\" = [",
        "[[allow]]\nmost = 0x40\nreservations = [",
        "[[allow]]\nmost = +64\nreservations = [",
        "[[allow]]\nusers = [\"nobod\\u0079\"]\nreservations = [",
    ] {
        fs_err::write(&config, whole.replace(rules, other)).unwrap();
        let done = finish(&mut lab.node(&["status"]));
        assert_eq!(done.code, Some(0), "{done:?}");
        refuses("cannot be read here");
    }
    fs_err::remove_file(&config).unwrap();
    refuses("No such file");
    fs_err::write(&config, &whole).unwrap();
    let ours = lab.folder().join("etc/our_cli_filter.lua");
    fs_err::set_permissions(&ours, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    refuses("our_cli_filter.lua");
}

#[test]
fn a_change_to_a_job_is_checked_with_what_the_job_is() {
    needs!(Slurm);
    let lab = seed_lab("job_submit.lua", "JobSubmitPlugins=lua");
    let options = ["--hold", "--gres=mps:16", "--reservation=jhl_homework_gpu"];
    let job = lab.submit(NOBODY, &options, "true");
    let update = |change: &str| {
        let mut scontrol = lab.by(NOBODY, "scontrol");
        let done = finish(scontrol.args(["update", &format!("jobid={job}"), change]));
        (done.code == Some(0), done.stderr)
    };
    for change in ["gres=mps:32", "reservation=jupyterhub_course_ml", "comment=mine"] {
        let (accepted, why) = update(change);
        assert!(accepted, "{change}: {why}");
    }
    for change in ["reservation=maintenance", "reservation="] {
        let (accepted, why) = update(change);
        assert!(!accepted, "{change}: {why}");
    }
    // A job without may become anything but one with mps.
    let job = lab.submit(NOBODY, &["--hold"], "true");
    let update = |change: &str| {
        let mut scontrol = lab.by(NOBODY, "scontrol");
        finish(scontrol.args(["update", &format!("jobid={job}"), change])).code == Some(0)
    };
    assert!(update("reservation=maintenance"));
    assert!(!update("gres=mps:16"));
}

#[test]
fn a_step_of_a_job_that_was_admitted_is_not_asked_again() {
    needs!(Slurm);
    let lab = seed_lab("cli_filter.lua", "CliFilterPlugins=cli_filter/lua");
    let mut salloc = lab.by(NOBODY, "salloc");
    salloc.args(["--mem=50", "--gres=mps:16"]);
    salloc.arg("--reservation=jhl_homework_gpu");
    salloc.args(["sh", "-c"]);
    // A job that is submitted in another is a job of its own.
    let script = "srun --mem=0 --gres=mps:16 echo well; \
                  sbatch --gres=mps:16 --wrap=true 2>&1 | grep -o 'mps is not allowed'";
    let text = lab.slurm.output(salloc.arg(script));
    assert_eq!(text, "well\nmps is not allowed\n");
}

#[test]
fn the_filter_knows_every_kind_of_rule() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings {
        more: "[mps]\nservers = false\n\n[[allow]]\nusers = [\"nob*\"]\npartitions = [\"main\", \"o*\"]\nmost = 64\n\n[[allow]]\nusers = [\"games\"]\naccounts = ['staff']\n",
        slurm_conf: &[
            "JobSubmitPlugins=lua",
            "PartitionName=other Nodes=ALL State=UP",
            "PartitionName=night Nodes=ALL State=UP",
        ],
        files: vec![("job_submit.lua".to_owned(), filter_text("job_submit.lua"))],
        ..NodeSettings::default()
    });
    for (user, options, may) in [
        (NOBODY, &["--gres=mps:64"][..], true),
        (NOBODY, &["--gres=mps:65"], false),
        // Only slurmctld knows its account: the node decides.
        (GAMES, &["--gres=mps:64"], true),
        (GAMES, &["--gres=mps:640", "--account=staff"], true),
        (GAMES, &["--gres=mps:64", "--account=students"], false),
        (NOBODY, &["--gres=mps:64", "--partition=other"], true),
        (NOBODY, &["--gres=mps:64", "--partition=main,other"], true),
        (NOBODY, &["--gres=mps:64", "--partition=night"], false),
        (NOBODY, &["--gres=mps:64", "--partition=main,night"], false),
        (NOBODY, &["--partition=main,night"], true),
    ] {
        let mut sbatch = lab.by(user, "sbatch");
        sbatch.args(["--parsable", "--mem=50", "--output=/dev/null"]);
        let done = finish(sbatch.arg("--wrap=true").args(options));
        assert_eq!(done.code == Some(0), may, "{options:?}: {done:?}");
        assert_eq!(done.stderr.contains("packhorse: mps"), !may, "{options:?}: {done:?}");
    }
}

#[test]
fn of_several_reservations_all_must_fit() {
    needs!(Slurm);
    let lab = seed_lab("cli_filter.lua", "CliFilterPlugins=cli_filter/lua");
    for (reservations, may) in
        [("jhl_homework_gpu,jupyterhub_course_ml", true), ("jhl_homework_gpu,maintenance", false)]
    {
        let reservation = format!("--reservation={reservations}");
        let (_, why) = submits(&lab, &["--gres=mps:16", &reservation]);
        assert_eq!(!why.contains("packhorse: mps is not allowed"), may, "{why}");
    }
}
