//! What the tests need: looked for, announced, and installed where that is possible.

use anyhow::{Error, Result};
use packhorse_test_parts::Part;

use crate::debian;
use crate::python::PythonTests;
use crate::setup::{self, Venv, python_with_venv};
use crate::slurm;

/// The components of the toolchain that the checks need, and cargo's subcommands that tell.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "fmt"), ("clippy", "clippy")];

/// A pending installation.
struct Installation<'a> {
    what: String,
    run: Box<dyn FnOnce() -> Result<()> + Send + 'a>,
}

impl<'a> Installation<'a> {
    fn new(what: impl Into<String>, run: impl FnOnce() -> Result<()> + Send + 'a) -> Self {
        Self { what: what.into(), run: Box::new(run) }
    }
}

/// Installs what is not here, but for the parts whose tests are left out anyway. Returns what
/// could not be installed.
pub fn prepare(left_out: &[Part]) -> Vec<Error> {
    let is_wanted = |part: Part| !left_out.contains(&part);
    let (of_system, mut problems) = of_system(is_wanted);
    let python = is_wanted(Part::Python).then(PythonTests::find);
    let python = python.and_then(Result::ok);
    announce("on this machine", of_system.iter().map(|each| each.what.as_str()));
    let in_target_now = in_target(is_wanted, python.as_ref());
    // For which Pythons is only known when there is one.
    let later = format!("{}, PyPI's, for each Python", PythonTests::contents());
    let later = (python_with_venv().is_none() && can_have_python(is_wanted)).then_some(&*later);
    announce("in target/", in_target_now.iter().map(|each| each.what.as_str()).chain(later));
    drop(in_target_now);
    for installation in of_system {
        problems.extend((installation.run)().err());
    }
    // Only now there is a Python, or what makes the folder of Slurm.
    let python = is_wanted(Part::Python).then(PythonTests::find);
    let python = python.and_then(|found| found.map_err(|error| problems.push(error)).ok());
    std::thread::scope(|scope| {
        let installations = in_target(is_wanted, python.as_ref()).into_iter();
        let running: Vec<_> = installations.map(|each| scope.spawn(each.run)).collect();
        let ended = running.into_iter().map(|each| each.join().expect("it does not panic"));
        problems.extend(ended.filter_map(Result::err));
    });
    problems
}

fn announce<'a>(place: &str, installations: impl Iterator<Item = &'a str>) {
    for (number, what) in installations.enumerate() {
        if number == 0 {
            println!("to be installed {place}:");
        }
        println!("  {what}");
    }
}

/// What changes this machine, one after the other; and what is missing but cannot be installed.
fn of_system(is_wanted: impl Fn(Part) -> bool) -> (Vec<Installation<'static>>, Vec<Error>) {
    let (mut installations, mut problems) = (Vec::new(), Vec::new());
    for (component, subcommand) in COMPONENTS {
        if !setup::has_component(subcommand) {
            let what = format!("{component}, a component of the toolchain");
            let run = || setup::add_component(component);
            installations.push(Installation::new(what, run));
        }
    }
    for (part, packages) in debian::absent(is_wanted) {
        if let Err(problem) = debian::can_install(&packages) {
            problems.push(problem);
            continue;
        }
        let what = format!("{}, Debian's (for the tests of {})", packages.join(", "), part.name());
        installations.push(Installation::new(what, move || debian::apt(&packages)));
    }
    (installations, problems)
}

/// Whether there is a Python that makes environments, or will be.
fn can_have_python(is_wanted: impl Fn(Part) -> bool) -> bool {
    is_wanted(Part::Python)
        && (python_with_venv().is_some() || debian::can_install(&["python3-venv"]).is_ok())
}

/// What is made in the target folder, side by side.
fn in_target(
    is_wanted: impl Fn(Part) -> bool,
    python: Option<&PythonTests>,
) -> Vec<Installation<'_>> {
    let mut installations = Vec::new();
    let is_root = Part::Root.missing().is_none();
    if is_wanted(Part::Slurm24) && is_root && !slurm::root_24_11_is_there() {
        let what = "Slurm 24.11 of Debian 13 (150 MB)";
        installations.push(Installation::new(what, slurm::make_root_24_11));
    }
    if let Ok(venv) = Venv::of_tests()
        && !venv.is_complete()
        && can_have_python(is_wanted)
    {
        let what = format!("{}, PyPI's", venv.contents());
        let run = || venv.ready(python_with_venv).map(drop);
        installations.push(Installation::new(what, run));
    }
    for (venv, python) in python.iter().flat_map(|python| python.absent()) {
        let what = format!("{}, PyPI's, for {}", venv.contents(), python.display());
        installations.push(Installation::new(what, || venv.create(python)));
    }
    installations
}
