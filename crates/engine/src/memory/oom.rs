//! Whether a failed attempt ran out of GPU memory, from what it wrote and how it
//! ended.

use std::path::{Path, PathBuf};

use memchr::memmem;
use packhorse_model::Outcome;

/// What programs write when a GPU has no memory left, and who writes it.
const TEXTS: [(&str, &str); 16] = [
    ("PyTorch", "CUDA out of memory"),
    ("PyTorch", "torch.cuda.OutOfMemoryError"),
    ("PyTorch", "torch.OutOfMemoryError"),
    ("PyTorch", "HIP out of memory"),
    ("TensorFlow", "OOM when allocating tensor"),
    ("TensorFlow", "ran out of memory trying to allocate"),
    ("JAX", "RESOURCE_EXHAUSTED: Out of memory"),
    ("JAX", "RESOURCE_EXHAUSTED: Failed to allocate"),
    ("CuPy", "cupy.cuda.memory.OutOfMemoryError"),
    ("CUDA", "CUDA_ERROR_OUT_OF_MEMORY"),
    ("CUDA", "cudaErrorMemoryAllocation"),
    ("CUDA", "CUDA error: out of memory"),
    ("HIP", "hipErrorOutOfMemory"),
    ("cuBLAS", "CUBLAS_STATUS_ALLOC_FAILED"),
    ("cuDNN", "CUDNN_STATUS_ALLOC_FAILED"),
    ("cuSPARSE", "CUSPARSE_STATUS_ALLOC_FAILED"),
];

/// The signs of running out of memory, ours and the person's.
#[derive(Debug, Default)]
pub struct OomSigns {
    texts: Vec<String>,
    exits: Vec<i32>,
}

/// A line of the person's table that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}:{line}: `{text}` is not an exit status from 1 to 255\nhint: a line is a text that programs write, or `exit N`",
    path.display()
)]
pub struct OomSignsError {
    path: PathBuf,
    line: usize,
    text: String,
}

impl OomSigns {
    /// Reads more signs from a file, one per line: a text that programs write, or
    /// `exit N` for an exit status. Blank lines and those that begin with `#` are
    /// skipped.
    pub fn parse(path: &Path, table: &str) -> Result<Self, OomSignsError> {
        let mut signs = Self::default();
        for (number, line) in table.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("exit ") {
                Some(code) => {
                    let code = code.trim().parse().ok();
                    let code = code.filter(|code| (1..=255).contains(code));
                    signs.exits.push(code.ok_or_else(|| OomSignsError {
                        path: path.to_owned(),
                        line: number + 1,
                        text: line.to_owned(),
                    })?);
                }
                None => signs.texts.push(line.to_owned()),
            }
        }
        Ok(signs)
    }

    /// The sign of it in how an attempt ended, or at the end of its log.
    pub(crate) fn find(&self, outcome: Outcome, written: Option<&[u8]>) -> Option<String> {
        if let Outcome::Failed { code } = outcome
            && self.exits.contains(&code)
        {
            return Some(format!("exit status {code}"));
        }
        self.find_text(written?)
    }

    fn find_text(&self, written: &[u8]) -> Option<String> {
        let has = |text: &str| memmem::find(written, text.as_bytes()).is_some();
        let known = TEXTS.iter().find(|(_, text)| has(text));
        if let Some((who, text)) = known {
            return Some(format!("{who}: {text}"));
        }
        self.texts.iter().find(|text| has(text)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frameworks_write_is_recognised() {
        let signs = OomSigns::default();
        for text in [
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ...)",
            "ResourceExhaustedError: OOM when allocating tensor with shape[64,3,224,224]",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying",
            "RuntimeError: CUDA error: out of memory",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "cudaErrorMemoryAllocation: out of memory",
        ] {
            assert!(signs.find_text(text.as_bytes()).is_some(), "{text}");
        }
        for text in ["ValueError: out of memory of last year", "Killed", ""] {
            assert_eq!(signs.find_text(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_person_can_add_texts_and_exit_statuses() {
        let table = "# ours\n\nmy allocator gave up\nexit 42\n";
        let signs = OomSigns::parse(Path::new("oom.txt"), table).unwrap();
        assert!(signs.find_text(b"x\nmy allocator gave up at 3\n").is_some());
        assert!(signs.find(Outcome::Failed { code: 42 }, None).is_some());
        assert!(signs.find(Outcome::Failed { code: 41 }, None).is_none());
        let error = OomSigns::parse(Path::new("oom.txt"), "exit soon").unwrap_err();
        assert!(error.to_string().starts_with("oom.txt:1: `exit soon`"));
    }
}
