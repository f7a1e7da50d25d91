//! What one Python has to have in common with the tasks that are forked from it.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packhorse_proc::MARK_RUN;

use super::command::PythonCommand;
use crate::environment::Environment;

/// What decides how modules are imported, and with what result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonKey {
    /// The interpreter, and what it was called by.
    pub file: Arc<CStr>,
    pub name: Vec<u8>,
    pub options: Vec<Vec<u8>>,
    pub modules: Vec<String>,
    /// Where modules are looked for first.
    pub search: PathBuf,
    /// The folder it runs in, if that matters.
    pub folder: Option<PathBuf>,
    /// Variables that are read when modules are imported, if they are the task's own.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How the names of variables begin that the interpreter, the loader or libraries read
/// before a task could change them.
const READ_AT_START: [&str; 38] = [
    "BLIS_",
    "CONDA_",
    "CUPY_",
    "DGL",
    "GLIBC_TUNABLES",
    "GOMP_",
    "GOTO_",
    "HF_",
    "HOME",
    "JAX_",
    "KERAS_",
    "KMP_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "MPL",
    "NUMBA_",
    "NUMEXPR_",
    "NUMPY_",
    "OMP_",
    "OPENBLAS_",
    "PATH",
    "POLARS_",
    "PYTHON",
    "PYTORCH_",
    "RAY_",
    "RAYON_",
    "TBB_",
    "TF_",
    "TMPDIR",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "VIRTUAL_ENV",
    "XDG_",
    "XLA_",
];

/// Whether a variable decides how modules are imported. Of our own marks it is the one
/// that all tasks of a run have.
fn is_read_at_start(name: &[u8]) -> bool {
    let read = |start: &str| name.starts_with(start.as_bytes());
    READ_AT_START.into_iter().any(read) || name == MARK_RUN.as_bytes()
}

impl PythonKey {
    pub(super) fn new(
        file: Arc<CStr>,
        name: &[u8],
        command: &PythonCommand<'_>,
        modules: &[String],
        search: PathBuf,
        folder: &Path,
        environment: &Environment,
    ) -> Self {
        let own = environment.own();
        let own = own.filter(|(name, _)| is_read_at_start(name));
        let mut variables: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (name, value) in own {
            variables.retain(|(other, _)| other != name);
            variables.push((name.to_vec(), value.to_vec()));
        }
        variables.sort_unstable();
        Self {
            file,
            name: name.to_vec(),
            options: command.options.iter().map(|option| option.to_vec()).collect(),
            modules: modules.to_vec(),
            search,
            folder: names_relative_folders(environment).then(|| folder.to_owned()),
            variables,
        }
    }

    /// The modules as people read them.
    pub(super) fn list(&self) -> String {
        self.modules.join(", ")
    }
}

/// Whether where modules are depends on the folder that Python starts in.
fn names_relative_folders(environment: &Environment) -> bool {
    let own = environment.own_value(b"PYTHONPATH").map(<[u8]>::to_vec);
    let path = own.or_else(|| Some(std::env::var_os("PYTHONPATH")?.as_bytes().to_vec()));
    path.is_some_and(|path| path.split(|&byte| byte == b':').any(|it| !it.starts_with(b"/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_the_task_alone_needs_no_python_of_its_own() {
        for name in ["PYTHONPATH", "OMP_NUM_THREADS", "LD_PRELOAD", "PACKHORSE_RUN", "LC_ALL"] {
            assert!(is_read_at_start(name.as_bytes()), "{name}");
        }
        for name in ["SEED", "CUDA_VISIBLE_DEVICES", "PACKHORSE_TASK", "PACKHORSE_PARAMS"] {
            assert!(!is_read_at_start(name.as_bytes()), "{name}");
        }
    }
}
