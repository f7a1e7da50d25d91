//! Writing zip archives, without compression: code is small, and disks are large.

use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use fs_err::{self as fs, File};

/// 1980-01-01 00:00, the first moment that the format knows.
const DATE: u16 = 0x21;
/// Names are UTF-8.
const UTF_8: u16 = 1 << 11;
/// The version that a program needs to read it.
const VERSION: u16 = 10;

/// An archive that is being written. It appears as a whole.
pub(crate) struct ZipFile {
    path: PathBuf,
    new: PathBuf,
    out: BufWriter<File>,
    entries: Vec<Entry>,
    length: u64,
}

struct Entry {
    name: Vec<u8>,
    sum: u32,
    size: u32,
    at: u32,
}

impl Drop for ZipFile {
    fn drop(&mut self) {
        // Nothing is there any more if it was finished.
        let _ = fs::remove_file(&self.new);
    }
}

impl ZipFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            fs::create_dir_all(parent)?;
        }
        let new = parent.join(format!(".packhorse-zip-{}", std::process::id()));
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::new(File::create(&new)?),
            new,
            entries: Vec::new(),
            length: 0,
        })
    }

    /// Adds a file under a name.
    pub(crate) fn add(&mut self, name: &Path, file: &Path) -> io::Result<()> {
        let name = name.to_string_lossy().replace('\\', "/").into_bytes();
        let at = small(self.length)?;
        let mut entry = Entry {
            name,
            sum: 0,
            size: 0,
            at,
        };
        // What it holds is known only when it has been read.
        self.out.write_all(&header(&entry)?)?;
        self.out.write_all(&entry.name)?;
        let (mut sum, mut size) = (!0_u32, 0_u64);
        let mut input = BufReader::new(File::open(file)?);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = input.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            self.out.write_all(&buffer[..length])?;
            sum = updated(sum, &buffer[..length]);
            size += length as u64;
        }
        (entry.sum, entry.size) = (!sum, small(size)?);
        let header = header(&entry)?;
        self.out.seek(SeekFrom::Start(at.into()))?;
        self.out.write_all(&header)?;
        self.out.seek(SeekFrom::End(0))?;
        self.length += (header.len() + entry.name.len()) as u64 + size;
        self.entries.push(entry);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        let start = small(self.length)?;
        let mut directory = Vec::new();
        for entry in &self.entries {
            directory.extend(0x0201_4b50_u32.to_le_bytes());
            // Made by Unix, so that permissions are understood.
            directory.extend((0x0300 | VERSION).to_le_bytes());
            directory.extend(&header(entry)?[4..30]);
            // No comment, on the first disk, nothing special about its text.
            directory.extend([0; 6]);
            directory.extend((0o100_644_u32 << 16).to_le_bytes());
            directory.extend(entry.at.to_le_bytes());
            directory.extend(&entry.name);
        }
        let count = u16::try_from(self.entries.len()).map_err(|_| too_large())?;
        let length = small(directory.len() as u64)?;
        directory.extend(0x0605_4b50_u32.to_le_bytes());
        directory.extend([0; 4]);
        directory.extend(count.to_le_bytes());
        directory.extend(count.to_le_bytes());
        directory.extend(length.to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend([0; 2]);
        self.out.write_all(&directory)?;
        self.out.flush()?;
        fs::rename(&self.new, &self.path)
    }
}

/// What stands before a file, without its name.
fn header(entry: &Entry) -> io::Result<Vec<u8>> {
    let length = u16::try_from(entry.name.len()).map_err(|_| too_large())?;
    let mut header = Vec::with_capacity(30);
    header.extend(0x0403_4b50_u32.to_le_bytes());
    for word in [VERSION, UTF_8, 0, 0, DATE] {
        header.extend(word.to_le_bytes());
    }
    for number in [entry.sum, entry.size, entry.size] {
        header.extend(number.to_le_bytes());
    }
    header.extend(length.to_le_bytes());
    header.extend([0; 2]);
    Ok(header)
}

fn small(number: u64) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| too_large())
}

fn too_large() -> io::Error {
    let message = "a zip archive takes 4 GB and 65,535 files at most";
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

/// The sum that archives have (CRC-32), with more bytes in it.
fn updated(mut sum: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    for byte in bytes {
        let index = usize::from(sum.to_le_bytes()[0] ^ byte);
        sum = TABLE[index] ^ (sum >> 8);
    }
    sum
}

const fn table() -> [u32; 256] {
    let mut table = [0_u32; 256];
    let mut index = 0_u32;
    while index < 256 {
        let mut value = index;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                0xedb8_8320 ^ (value >> 1)
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index as usize] = value;
        index += 1;
    }
    table
}
