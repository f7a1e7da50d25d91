//! The script that sbatch is given: the usual one, or the person's template.

use std::path::Path;

use packhorse_intake::{did_you_mean, nearest};
use packhorse_model::SlurmSpec;
use packhorse_proc::{LARGEST_SETTINGS, read_whole};

use crate::SlurmError;
use crate::folder::SharedFolder;

/// The script of whoever has none of their own. A line of sbatch without a value is left
/// out.
const TEMPLATE: &str = "\
#!/bin/bash
#SBATCH --job-name=%%job-name%%
#SBATCH --partition=%%partition%%
#SBATCH --account=%%account%%
#SBATCH --time=%%time%%
#SBATCH --nodes=%%nodes%%
#SBATCH --ntasks=%%ntasks%%
#SBATCH --cpus-per-task=%%cpus-per-task%%
#SBATCH --mem=%%mem%%
#SBATCH --mem-per-cpu=%%mem-per-cpu%%
#SBATCH --gres=%%gres%%
#SBATCH --output=%%output%%
#SBATCH --open-mode=append
#SBATCH --requeue
%%sbatch_args%%

%%venv%%
%%sh_lines%%

# Signals reach packhorse itself only if it takes the place of this shell.
exec %%command%%
";

/// What a script is made of.
pub(crate) struct ScriptParts<'a> {
    pub(crate) spec: &'a SlurmSpec,
    /// The run's number, or what stands for it.
    pub(crate) run: &'a str,
    pub(crate) folder: &'a SharedFolder,
    /// The folder that tasks run in.
    pub(crate) run_in: &'a Path,
    /// The `packhorse` of the nodes.
    pub(crate) program: &'a Path,
    pub(crate) elements: u32,
}

fn read_template(path: &Path) -> Result<String, SlurmError> {
    let bytes = read_whole(path, LARGEST_SETTINGS)?;
    String::from_utf8(bytes).map_err(|_| SlurmError::Template {
        path: path.to_owned(),
        message: "it is not UTF-8".to_owned(),
    })
}

/// The script, whole.
pub(crate) fn script(parts: &ScriptParts<'_>) -> Result<String, SlurmError> {
    let (template, path) = match &parts.spec.template {
        Some(path) => (read_template(path)?, Some(path.as_path())),
        None => (TEMPLATE.to_owned(), None),
    };
    let wrong = |line: usize, message: String| SlurmError::Template {
        path: path.unwrap_or(Path::new("template")).to_owned(),
        message: format!("line {line}: {message}"),
    };
    let values = values(parts, &template);
    let mut script = String::new();
    let mut has_command = false;
    for (line, number) in template.lines().zip(1..) {
        // What cw2 calls its own program with.
        let line = if line.contains("%%python_script%%") { "exec %%command%%" } else { line };
        has_command |= line.contains("%%command%%");
        match fill(line, &values) {
            Ok(Filled::Line(line)) => script += &(line + "\n"),
            Ok(Filled::Nothing) => {}
            Err(unknown) => {
                let names = values.iter().map(|(name, _)| *name);
                let hint = nearest(&unknown, names).map(did_you_mean);
                let hint = hint.unwrap_or_else(|| "docs/slurm.md lists what there is".to_owned());
                let message = format!("there is no placeholder `%%{unknown}%%`\nhint: {hint}");
                return Err(wrong(number, message));
            }
        }
    }
    if !has_command {
        let message = "it does not run anything\nhint: write `exec %%command%%` as its last line";
        return Err(wrong(template.lines().count(), message.to_owned()));
    }
    if !script.starts_with("#!") {
        let message =
            "sbatch takes only scripts that begin with #!\nhint: write `#!/bin/bash` there";
        return Err(wrong(1, message.to_owned()));
    }
    Ok(script)
}

enum Filled {
    Line(String),
    Nothing,
}

/// A line with values in the place of placeholders. The error is a name that means nothing.
fn fill(line: &str, values: &[(&str, Option<String>)]) -> Result<Filled, String> {
    let (mut filled, mut rest, mut missing) = (String::new(), line, false);
    while let Some((before, behind)) = rest.split_once("%%") {
        let Some((name, after)) = behind.split_once("%%") else {
            break;
        };
        // Three in a row are one of Slurm's own, behind or before ours: `%%a%%%%%b%%`.
        if name.is_empty() || name.starts_with('%') || name.contains(char::is_whitespace) {
            filled += before;
            filled += "%";
            rest = &rest[before.len() + 1..];
            continue;
        }
        let value = values.iter().find(|(known, _)| *known == name);
        let (_, value) = value.ok_or(name)?;
        filled += before;
        filled += value.as_deref().unwrap_or_default();
        missing |= value.is_none();
        rest = after;
    }
    filled += rest;
    let is_alone = line.starts_with("%%") && line.ends_with("%%");
    if missing && (line.trim_start().starts_with("#SBATCH") || is_alone) {
        return Ok(Filled::Nothing);
    }
    Ok(Filled::Line(filled))
}

fn values(parts: &ScriptParts<'_>, template: &str) -> Vec<(&'static str, Option<String>)> {
    let spec = parts.spec;
    let own = |keys: &[&str]| own_option(&spec.sbatch, keys);
    let text = |value: &Option<String>| value.as_deref().map(quoted);
    let number = |value: Option<std::num::NonZeroU32>| value.map(|value| value.to_string());
    // Slurm puts numbers in the place of other letters behind a `%`.
    let output = spec.output.clone().unwrap_or_else(|| {
        let logs = parts.folder.file("slurm").display().to_string();
        format!("{}/%A_%a.out", logs.replace('%', "%%"))
    });
    let logs = match Path::new(&output).parent() {
        Some(folder) if folder != Path::new("") => folder.display().to_string(),
        _ => ".".to_owned(),
    };
    let name = spec.job_name.clone();
    let name = name.unwrap_or_else(|| format!("packhorse-{}", parts.run));
    // Templates of cw2 have no places for these: there, they are among all the others.
    let placed = [
        ("mem", text(&spec.mem)),
        ("mem-per-cpu", text(&spec.mem_per_cpu)),
        ("gres", text(&spec.gres)),
    ];
    let unplaced = placed.iter().filter(|(name, _)| !asks_for(template, name));
    let unplaced =
        unplaced.filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
    let further = spec.sbatch.iter().map(|line| line.trim().to_owned());
    let lines = unplaced.chain(further);
    let lines: Vec<String> = lines.map(|line| format!("#SBATCH {line}")).collect();
    let [mem, mem_per_cpu, gres] = placed;
    let command = format!(
        "{} slurm element {} \"${{1:-0}}\"",
        shell_word(&parts.program.display().to_string()),
        shell_word(&parts.folder.path().display().to_string()),
    );
    let jobs = number(spec.jobs).unwrap_or_else(|| parts.elements.to_string());
    let run_in = parts.run_in.display().to_string();
    let some_lines = |lines: Vec<String>| (!lines.is_empty()).then(|| lines.join("\n"));
    vec![
        ("job-name", Some(quoted(&name))),
        ("partition", text(&spec.partition)),
        ("account", text(&spec.account)),
        ("time", spec.time.map(|time| time.to_string())),
        // What is spread over several nodes would be used on one of them alone.
        ("nodes", (!own(&["nodes", "N"])).then(|| "1".to_owned())),
        ("ntasks", number(spec.ntasks)),
        ("cpus-per-task", number(spec.cpus_per_task)),
        mem,
        mem_per_cpu,
        gres,
        ("output", (!own(&["output", "o"])).then(|| quoted(&output))),
        ("slurm_log", Some(quoted(&logs))),
        ("slurm_output", Some(quoted(&output))),
        ("num_parallel_jobs", Some(jobs)),
        ("last_job_idx", Some(parts.elements.saturating_sub(1).to_string())),
        ("experiment_wd", Some(quoted(&run_in))),
        ("experiment_execution_dir", Some(quoted(&run_in))),
        ("sbatch_args", some_lines(lines)),
        ("venv", spec.venv.as_ref().map(|venv| format!("source activate {venv}"))),
        ("pythonpath", None),
        ("sh_lines", some_lines(spec.sh_lines.clone())),
        ("command", Some(command)),
    ]
}

/// Whether a line of sbatch has this placeholder.
fn asks_for(template: &str, name: &str) -> bool {
    let placeholder = format!("%%{name}%%");
    let mut lines = template.lines();
    lines.any(|line| line.starts_with("#SBATCH") && line.contains(&placeholder))
}

/// Whether the person says one of these to sbatch themselves.
fn own_option(arguments: &[String], keys: &[&str]) -> bool {
    arguments.iter().any(|argument| {
        let argument = argument.trim().trim_start_matches('-');
        let key = argument.split(['=', ' ']).next();
        key.is_some_and(|key| keys.contains(&key))
    })
}

/// A value for a line of sbatch, which is split at blanks.
fn quoted(text: &str) -> String {
    if text.contains([' ', '\t', '#', '\'', '"', '\\']) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@".contains(c);
    if text.chars().all(is_plain) && !text.is_empty() {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn made(spec: &SlurmSpec) -> Result<String, SlurmError> {
        script(&ScriptParts {
            spec,
            run: "12",
            folder: &SharedFolder::open("/shared/my run/12".into()),
            run_in: Path::new("/work"),
            program: Path::new("/opt/packhorse"),
            elements: 8,
        })
    }

    #[test]
    fn the_usual_script_has_what_was_asked_for() {
        let spec = SlurmSpec {
            partition: Some("gpu".to_owned()),
            time: "2h".parse().ok(),
            gres: Some("gpu:4".to_owned()),
            sbatch: vec!["--constraint=a100".to_owned(), "--exclusive".to_owned()],
            venv: Some("torch".to_owned()),
            sh_lines: vec!["module load cuda".to_owned()],
            ..SlurmSpec::default()
        };
        assert_eq!(
            made(&spec).unwrap(),
            "#!/bin/bash\n\
             #SBATCH --job-name=packhorse-12\n\
             #SBATCH --partition=gpu\n\
             #SBATCH --time=02:00:00\n\
             #SBATCH --nodes=1\n\
             #SBATCH --gres=gpu:4\n\
             #SBATCH --output=\"/shared/my run/12/slurm/%A_%a.out\"\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --requeue\n\
             #SBATCH --constraint=a100\n\
             #SBATCH --exclusive\n\
             \n\
             source activate torch\n\
             module load cuda\n\
             \n\
             # Signals reach packhorse itself only if it takes the place of this shell.\n\
             exec /opt/packhorse slurm element '/shared/my run/12' \"${1:-0}\"\n"
        );
    }

    #[test]
    fn what_the_person_says_to_sbatch_is_not_said_twice() {
        let spec = SlurmSpec {
            sbatch: vec!["--output=/tmp/%j".to_owned(), "-N 1".to_owned()],
            ..SlurmSpec::default()
        };
        let script = made(&spec).unwrap();
        assert_eq!(script.matches("--output").count(), 1);
        assert!(!script.contains("--nodes"), "{script}");
    }

    #[test]
    fn names_with_odd_characters_mean_themselves() {
        let spec = SlurmSpec { job_name: Some("5\" \\x".to_owned()), ..SlurmSpec::default() };
        let script = script(&ScriptParts {
            spec: &spec,
            run: "12",
            folder: &SharedFolder::open("/50%a/it's".into()),
            run_in: Path::new("/work"),
            program: Path::new("/opt/packhorse"),
            elements: 8,
        });
        let script = script.unwrap();
        for line in [
            r#"#SBATCH --job-name="5\" \\x""#,
            r#"#SBATCH --output="/50%%a/it's/slurm/%A_%a.out""#,
            r#"exec /opt/packhorse slurm element '/50%a/it'\''s' "${1:-0}""#,
        ] {
            assert!(script.lines().any(|it| it == line), "{line}\n{script}");
        }
    }

    fn templated(template: &str, spec: SlurmSpec) -> Result<String, SlurmError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.sh");
        fs_err::write(&path, template).unwrap();
        made(&SlurmSpec { template: Some(path), ..spec })
    }

    #[test]
    fn a_template_of_cw2_works_as_it_is() {
        let template = "#!/bin/bash\n\
            #SBATCH -p %%partition%%\n\
            #SBATCH -A %%account%%\n\
            #SBATCH --array=0-%%last_job_idx%%%%%num_parallel_jobs%%\n\
            #SBATCH -o %%slurm_log%%/out_%A_%a.log\n\
            %%sbatch_args%%\n\
            %%venv%%\n\
            python3 %%python_script%% %%path_to_yaml_config%% -j $SLURM_ARRAY_TASK_ID %%cw_args%%\n";
        let spec = SlurmSpec {
            partition: Some("gpu".to_owned()),
            jobs: NonZeroU32::new(3),
            gres: Some("gpu:1".to_owned()),
            mem: Some("4G".to_owned()),
            mem_per_cpu: Some("100".to_owned()),
            sbatch: vec!["--constraint=a100".to_owned()],
            ..SlurmSpec::default()
        };
        assert_eq!(
            templated(template, spec).unwrap(),
            "#!/bin/bash\n\
             #SBATCH -p gpu\n\
             #SBATCH --array=0-7%3\n\
             #SBATCH -o \"/shared/my run/12/slurm\"/out_%A_%a.log\n\
             #SBATCH --mem=4G\n\
             #SBATCH --mem-per-cpu=100\n\
             #SBATCH --gres=gpu:1\n\
             #SBATCH --constraint=a100\n\
             exec /opt/packhorse slurm element '/shared/my run/12' \"${1:-0}\"\n"
        );
    }

    #[test]
    fn what_has_a_place_in_a_template_is_not_among_the_further_arguments() {
        let spec = SlurmSpec {
            gres: Some("gpu:1".to_owned()),
            mem: Some("4G".to_owned()),
            output: Some("/logs/out_%A_%a.log".to_owned()),
            ..SlurmSpec::default()
        };
        let template = "#!/bin/bash\n\
            #SBATCH --gres=%%gres%%\n\
            # #SBATCH --mem=%%mem%%\n\
            #SBATCH -e %%slurm_log%%/err\n\
            %%sbatch_args%%\n\
            exec %%command%%\n";
        let script = templated(template, spec).unwrap();
        assert!(script.contains("\n#SBATCH -e /logs/err\n#SBATCH --mem=4G\nexec "), "{script}");
        assert_eq!(script.matches("--gres").count(), 1, "{script}");
    }

    #[test]
    fn a_template_that_cannot_work_is_refused_with_its_line() {
        let wrong = |template: &str| {
            let error = templated(template, SlurmSpec::default()).unwrap_err();
            error.to_string()
        };
        let unknown = wrong("#!/bin/sh\n#SBATCH -p %%partitoin%%\n%%command%%\n");
        assert!(
            unknown.contains("my.sh: line 2: there is no placeholder `%%partitoin%%`"),
            "{unknown}"
        );
        assert!(unknown.ends_with("hint: did you mean `partition`?"), "{unknown}");
        assert!(wrong("#!/bin/sh\necho hello\n").contains("it does not run anything"));
        assert!(wrong("%%command%%\n").contains("begin with #!"));
    }
}
