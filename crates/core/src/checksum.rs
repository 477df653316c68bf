//! Checksums that identify code. They are cryptographic, so that no other file has the same one. A
//! run file and its lines, where only accidental changes matter, have a CRC.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Computes a checksum: the first 128 bits of BLAKE3.
#[derive(Debug, Default)]
pub struct Checksum(blake3::Hasher);

impl Checksum {
    /// The checksum of all these parts.
    pub fn new<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Checksum {
        let mut sum = Checksum::default();
        parts.into_iter().for_each(|part| sum.add(part));
        sum
    }

    /// Adds a part, with its length, so that the parts `ab`, `c` differ from `a`, `bc`.
    pub fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// The checksum as 32 hexadecimal digits.
    pub fn text(&self) -> String {
        self.0.finalize().to_hex()[..32].to_owned()
    }

    /// The first 12 hexadecimal digits, for the name of a folder.
    pub fn name(&self) -> String {
        self.0.finalize().to_hex()[..12].to_owned()
    }
}

/// Computes the checksum and the length of a file's contents, piece by piece.
#[derive(Debug, Default)]
pub struct Contents(blake3::Hasher);

impl Contents {
    /// Appends bytes to the contents.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum as 32 hexadecimal digits, a dash and the length in bytes.
    pub fn text(&self) -> String {
        let (digits, length) = (self.0.finalize().to_hex(), self.0.count());
        format!("{}-{length}", &digits[..32])
    }
}

/// The checksum and the length of a file's contents.
///
/// # Errors
/// When it cannot be read.
pub fn of_file(path: &Path) -> io::Result<String> {
    let mut contents = Contents::default();
    pieces(File::open(path)?, |piece| contents.add(piece))?;
    Ok(contents.text())
}

/// Calls `look` with each piece of a file's contents.
pub(crate) fn pieces(mut file: File, mut look: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 17];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            n => look(&buffer[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_and_a_file_is_its_contents() {
        assert_ne!(
            Checksum::new(["ab", "c"]).text(),
            Checksum::new(["a", "bc"]).text()
        );
        assert_eq!(Checksum::new(["ab", "c"]).text().len(), 32);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "").unwrap();
        // BLAKE3 of an empty input, from its reference.
        let empty = "af1349b9f5f9a1a6a0404dea36dcc949-0";
        assert_eq!(of_file(&path).unwrap(), empty);
        std::fs::write(&path, "123456789").unwrap();
        // The same CRC-32 and length, and another file.
        let sums = ["plumless", "buckeroo"].map(|text| {
            std::fs::write(&path, text).unwrap();
            (crc32fast::hash(text.as_bytes()), of_file(&path).unwrap())
        });
        assert_eq!(sums[0].0, sums[1].0);
        assert_ne!(sums[0].1, sums[1].1);
    }
}
