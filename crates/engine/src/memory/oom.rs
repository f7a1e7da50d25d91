//! Whether a failed attempt ran out of GPU memory, from what it wrote and how it
//! ended.

use std::path::{Path, PathBuf};

use memchr::memmem;
use packhorse_model::{Bytes, Outcome};

use super::evidence::{Ending, LastWords};

/// What programs write when a GPU has no memory left, and who writes it.
const TEXTS: [(&str, &str); 24] = [
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
    ("NCCL", "Cuda failure 'out of memory'"),
    ("llama.cpp", "cudaMalloc failed: out of memory"),
    ("MXNet", "cudaMalloc retry failed: out of memory"),
    ("Paddle", "Out of memory error on GPU"),
    ("Paddle", "ResourceExhaustedError: \n\nOut of memory"),
    ("ONNX Runtime", "Failed to allocate memory for requested buffer"),
    ("vLLM", "No available memory for the cache blocks"),
    ("vLLM", "is less than desired GPU memory utilization"),
];

/// How many lines from the end a text counts in: a program that caught the error and went on
/// writes more.
const NEAR_LINES: usize = 100;

/// How many lines from the end an error counts in that has nothing to do with memory: one
/// that a program goes on after is not why it ends.
const LAST_LINES: usize = 5;

/// Errors that may well be those of memory, or of which nothing can be told: libraries of
/// CUDA that cannot begin say no more, and launchers only tell that one of theirs has ended.
const UNTELLING: [&str; 4] = ["CUDNN_", "CUBLAS_", "CUDA error", "ChildFailedError"];

/// What comes before the amount that a program could not get.
const ASKING: [&str; 2] = ["to allocate ", "allocating "];

/// A sign that an attempt ran out of memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OomSign {
    /// In words.
    pub(super) what: String,
    /// What it could not get, if it said so.
    pub(super) asked: Option<Bytes>,
    /// An error that it wrote after that.
    pub(super) later_error: Option<String>,
}

/// What the end of an attempt, and what it wrote, tell about GPU memory.
#[derive(Debug)]
pub(super) struct LogReading {
    pub(super) words: LastWords,
    pub(super) ending: Ending,
    /// What it says of GPU memory, near the end or not.
    pub(super) sign: Option<OomSign>,
}

impl LogReading {
    fn silent(outcome: Outcome) -> Self {
        let ending = match outcome {
            // 129 and more is how a shell tells of a signal.
            Outcome::Killed { .. } | Outcome::Failed { code: 129..=192 } => Ending::Signal,
            _ => Ending::Status,
        };
        Self { words: LastWords::Nothing, ending, sign: None }
    }
}

impl OomSign {
    /// One that has nothing to do with what was written.
    fn unwritten(what: String) -> Self {
        Self { what, asked: None, later_error: None }
    }
}

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

    /// What the end of an attempt, and what it wrote, tell about GPU memory.
    pub(super) fn read(&self, outcome: Outcome, written: Option<&[u8]>) -> LogReading {
        let mut reading = LogReading::silent(outcome);
        if let Outcome::Failed { code } = outcome
            && self.exits.contains(&code)
        {
            reading.ending = Ending::Declared;
            reading.sign = Some(OomSign::unwritten(format!("exit status {code}")));
        }
        let Some(written) = written else {
            return reading;
        };
        if let Some(sign) = self.find_text(near_end(written, NEAR_LINES)) {
            (reading.words, reading.sign) = (LastWords::OutOfMemory, Some(sign));
            return reading;
        }
        let before = self.find_text(written);
        reading.words = match &before {
            _ if tells_another_error(written) => LastWords::AnotherError,
            Some(_) => LastWords::OutOfMemoryBefore,
            None => LastWords::Nothing,
        };
        reading.sign = reading.sign.or(before);
        reading
    }

    fn find_text(&self, written: &[u8]) -> Option<OomSign> {
        let last = |text: &str| memmem::rfind(written, text.as_bytes());
        let known = TEXTS.iter().find_map(|(who, text)| {
            let at = last(text)?;
            Some((format!("{who}: {text}"), at))
        });
        let (what, at) = known.or_else(|| {
            let mut own = self.texts.iter();
            own.find_map(|text| Some((text.clone(), last(text)?)))
        })?;
        Some(OomSign {
            what: what.replace('\n', " "),
            asked: asked_for(written),
            later_error: later_error(&written[at..]),
        })
    }
}

/// The last lines of what was written. Those of reports do not count: a traceback of each of
/// several workers, or an allocator's list of all it holds, may be long.
fn near_end(written: &[u8], lines: usize) -> &[u8] {
    let text = written.trim_ascii_end();
    let mut end = text.len();
    let mut counted = 0;
    while counted < lines && end > 0 {
        let start = memchr::memrchr(b'\n', &text[..end]).map_or(0, |at| at + 1);
        let line = &text[start..end];
        let of_report = line.first().is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'['))
            || line.starts_with(b"Traceback");
        counted += usize::from(!of_report);
        end = start.saturating_sub(1);
        if start == 0 {
            return text;
        }
    }
    &text[end..]
}

/// What a program last said that it could not get: `Tried to allocate 2.50 GiB`.
fn asked_for(written: &[u8]) -> Option<Bytes> {
    let asking = ASKING.iter().filter_map(|text| {
        let at = memmem::rfind(written, text.as_bytes())?;
        Some(at + text.len())
    });
    let rest = &written[asking.max()?..];
    let end = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.'))?;
    let number = str::from_utf8(&rest[..end]).ok()?;
    let unit = rest[end..].trim_ascii_start();
    if unit.starts_with(b"byte") {
        return number.parse().ok().map(Bytes);
    }
    let unit = unit.split(|byte| !byte.is_ascii_alphabetic()).next()?;
    format!("{number}{}", str::from_utf8(unit).ok()?).parse().ok()
}

/// Whether what an attempt wrote ends with an error that has nothing to do with memory.
fn tells_another_error(written: &[u8]) -> bool {
    let text = String::from_utf8_lossy(near_end(written, LAST_LINES));
    let tells = |line: &&str| {
        speaks_of_error(line) && !UNTELLING.iter().any(|untelling| line.contains(untelling))
    };
    let is_about_memory = |line: &str| {
        let line = line.to_lowercase();
        ["memory", "alloc"].iter().any(|it| line.contains(it))
    };
    let error = text.lines().rfind(tells);
    error.is_some_and(|line| !is_about_memory(line))
}

fn speaks_of_error(line: &str) -> bool {
    ["Error", "Exception"].iter().any(|it| line.contains(it)) || has_error_prefix(line)
}

/// Whether a line says `error:` of something, which is not what a model's error is, nor part
/// of another word.
fn has_error_prefix(line: &str) -> bool {
    line.split_once("error:").is_some_and(|(before, after)| {
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let mut after = after.trim_start_matches([' ', '+', '-', '.']).chars();
        is_word && !after.next().is_some_and(|c| c.is_ascii_digit())
    })
}

/// The last line that speaks of an error, if the first one, which speaks of memory, is not
/// all there is.
fn later_error(written: &[u8]) -> Option<String> {
    const LONGEST: usize = 120;
    let text = String::from_utf8_lossy(written);
    let (_, after) = text.split_once('\n')?;
    let mut lines = after.lines().map(str::trim);
    let line = lines.rfind(|line| {
        let is_about_memory = TEXTS.iter().any(|(_, text)| line.contains(text));
        !is_about_memory && speaks_of_error(line)
    })?;
    let visible = line.chars().filter(|c| !c.is_control());
    Some(visible.take(LONGEST).collect())
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
        for text in [
            "node:1:2 [0] include/alloc.h:99 NCCL WARN Cuda failure 'out of memory'",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2560.00 MiB on device 0: \
             cudaMalloc failed: out of memory",
            "ValueError: No available memory for the cache blocks. Try increasing",
            "BFCArena::AllocateRawInternal(size_t) Failed to allocate memory for requested buffer \
             of size 123",
            "Out of memory error on GPU 0. Cannot allocate 1.5GB memory on GPU 0",
            "paddle.base.libpaddle.ResourceExhaustedError: \n\nOut of memory on device 0",
            "mxnet.base.MXNetError: Check failed: e == cudaSuccess: cudaMalloc retry failed: out \
             of memory",
            "ValueError: Free memory on device (5.1/23.5 GiB) on startup is less than desired GPU \
             memory utilization (0.9, 21.15 GiB)",
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
        let ending = |code| signs.read(Outcome::Failed { code }, None).ending;
        assert_eq!(ending(42), Ending::Declared);
        assert_eq!(ending(41), Ending::Status);
        assert_eq!(ending(139), Ending::Signal);
        let error = OomSigns::parse(Path::new("oom.txt"), "exit soon").unwrap_err();
        assert!(error.to_string().starts_with("oom.txt:1: `exit soon`"));
    }

    const FAILED: Outcome = Outcome::Failed { code: 1 };

    #[test]
    fn what_was_caught_long_before_the_end_is_not_the_last_word() {
        let read = |text: &str| OomSigns::default().read(FAILED, Some(text.as_bytes()));
        let caught = |lines: usize, last: &str| {
            let steps = "step\n".repeat(lines);
            format!("caught: CUDA out of memory\n{steps}{last}\n")
        };
        let near = read(&caught(50, "KeyError: 'lr'"));
        assert_eq!(near.words, LastWords::OutOfMemory);
        assert_eq!(near.sign.unwrap().later_error.as_deref(), Some("KeyError: 'lr'"));
        assert_eq!(read(&caught(300, "KeyError: 'lr'")).words, LastWords::AnotherError);
        assert_eq!(read(&caught(300, "bye")).words, LastWords::OutOfMemoryBefore);
        assert_eq!(read("bye").words, LastWords::Nothing);
        // Long reports of several workers are no sign that it went on.
        let report = "[rank1]: Traceback\n  File x\n\n\tBuffer 1\n".repeat(100);
        let died = format!("CUDA out of memory\n{report}ChildFailedError: train.py\n");
        assert_eq!(read(&died).words, LastWords::OutOfMemory);
    }

    #[test]
    fn what_was_asked_for_is_understood() {
        for (text, bytes) in [
            ("Tried to allocate 2.50 GiB (GPU 0)", Some(5 << 29)),
            ("Tried to allocate 20.00 MiB. GPU 0 has", Some(20 << 20)),
            ("Out of memory while trying to allocate 4096 bytes.", Some(4096)),
            ("ran out of memory trying to allocate 1.5GiB with", Some(3 << 29)),
            ("allocating 2560.00 MiB on device 0: cudaMalloc", Some(2560 << 20)),
            ("Tried to allocate 1 GiB\nTried to allocate 3 GiB", Some(3 << 30)),
            ("Tried to allocate much", None),
            ("to allocate 5", None),
            ("", None),
        ] {
            assert_eq!(asked_for(text.as_bytes()), bytes.map(Bytes), "{text}");
        }
    }
}
