//! How programs die of too little memory: the texts by which people, and other
//! programs, know it.

use clap::ValueEnum;

/// What to die like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Style {
    /// PyTorch's allocator.
    PyTorch,
    /// TensorFlow's.
    TensorFlow,
    /// JAX's.
    Jax,
    /// A library of NVIDIA's inside PyTorch, which does not name memory at all.
    Cublas,
    /// A program that uses CUDA itself.
    Cuda,
    /// A program that says nothing.
    Silent,
}

/// What there was and what was wanted, in bytes.
pub struct Lack {
    /// CUDA's number of the device.
    pub ordinal: usize,
    /// All of the device's memory.
    pub total: u64,
    /// What was free.
    pub free: u64,
    /// What the program had.
    pub had: u64,
    /// What it wanted to have in all.
    pub wanted: u64,
}

impl Style {
    /// The last words. `None`: there are none.
    pub fn text(self, lack: &Lack) -> Option<String> {
        let more = lack.wanted.saturating_sub(lack.had);
        Some(match self {
            Self::PyTorch => format!(
                "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n\
                 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. \
                 GPU {} has a total capacity of {} of which {} is free. \
                 Including non-PyTorch memory, this process has {} memory in use.",
                size(more),
                lack.ordinal,
                size(lack.total),
                size(lack.free),
                size(lack.had),
            ),
            Self::TensorFlow => format!(
                "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when \
                 allocating tensor with shape[{}] and type float on \
                 /job:localhost/replica:0/task:0/device:GPU:{} by allocator GPU_{}_bfc [Op:Conv2D]",
                more / 4,
                lack.ordinal,
                lack.ordinal,
            ),
            Self::Jax => format!(
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: \
                 Out of memory while trying to allocate {more} bytes."
            ),
            Self::Cublas => "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED \
                             when calling `cublasCreate(handle)`"
                .to_owned(),
            Self::Cuda => "CUDA error: out of memory (cudaErrorMemoryAllocation)".to_owned(),
            Self::Silent => return None,
        })
    }
}

/// `2.00 GiB`, as PyTorch writes it.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1 << 30 { (1 << 30, "GiB") } else { (1 << 20, "MiB") };
    let hundredths = u128::from(bytes) * 100 / unit;
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}
