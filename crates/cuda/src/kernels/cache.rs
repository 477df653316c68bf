//! Compiled kernels on disk, so that a warm start compiles nothing.
//!
//! A file has one image: a line of JSON, the cubin, and the CRC-32 of both (four bytes,
//! little-endian). Its name has a checksum of everything that determines the image. It is written
//! to a temporary file and renamed, so any number of processes may write at the same time. A torn
//! or edited file counts as missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::compile::Image;
use regatta_core::checksum::Checksum;
use regatta_core::input;
use regatta_core::output;

/// Part of every key, so that another format has other file names.
const FORMAT: &str = "regatta kernel image 2";

/// The number of images that are kept for each file, architecture and compiler: those of the last
/// few versions of the source.
const MAX_IMAGES: usize = 8;

/// The place of an image in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// A readable name, by which older versions of the same image are found.
    label: String,
    sum: String,
}

impl CacheKey {
    /// The key of an image that these texts determine.
    pub fn new<'a>(label: &str, texts: impl IntoIterator<Item = &'a str>) -> CacheKey {
        CacheKey {
            label: label.to_owned(),
            sum: Checksum::new([FORMAT].into_iter().chain(texts)).text(),
        }
    }

    /// The path of the image in a folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}{}.image", self.prefix(), self.sum))
    }

    /// The path that is locked while an image of this label is compiled.
    pub fn lock(&self, folder: &Path) -> PathBuf {
        folder.join(&self.label)
    }

    fn prefix(&self) -> String {
        format!("{}-", self.label)
    }
}

/// The image of a key; `None` if it is missing or damaged.
pub fn load(folder: &Path, key: &CacheKey) -> Option<Image> {
    let bytes = input::bytes(&key.path(folder), input::IMAGE).ok()?;
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let end = body.iter().position(|byte| *byte == b'\n')?;
    Some(Image {
        cubin: body[end + 1..].to_vec(),
        cached: true,
        ..serde_json::from_slice(&body[..end]).ok()?
    })
}

/// Stores an image, and removes the oldest of its label.
///
/// # Errors
/// The folder cannot be written.
pub fn store(folder: &Path, key: &CacheKey, image: &Image) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut bytes = serde_json::to_vec(image)?;
    bytes.push(b'\n');
    bytes.extend(&image.cubin);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    output::write(&key.path(folder), &bytes)?;
    forget_oldest(folder, key);
    Ok(())
}

/// Removes all images of a key's label except the newest. Errors are ignored.
fn forget_oldest(folder: &Path, key: &CacheKey) {
    let prefix = key.prefix();
    // Only the hash may follow: `flash_mma-` must not match flash_mma_backward's images.
    let length = prefix.len() + 32 + ".image".len();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut images: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() == length && name.starts_with(&prefix) && name.ends_with(".image")
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    images.sort();
    let excess = images.len().saturating_sub(MAX_IMAGES);
    for (_, path) in images.drain(..excess) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile::Resources;
    use super::*;

    fn image(cubin: &[u8]) -> Image {
        Image {
            cubin: cubin.to_vec(),
            compiler: "nvcc 13.0.88".to_owned(),
            resources: vec![Resources {
                name: "k".to_owned(),
                registers: 40,
                ..Resources::default()
            }],
            cached: false,
            seconds: 1.25,
            warnings: vec!["k.cu(1): warning".to_owned()],
        }
    }

    #[test]
    fn images_read_back_and_damage_is_absence() {
        let folder = tempfile::tempdir().unwrap();
        let key = CacheKey::new("naive-sm_80-nvcc", ["a", "b"]);
        assert!(load(folder.path(), &key).is_none());
        let cubin: Vec<u8> = (0..=255).collect();
        store(folder.path(), &key, &image(&cubin)).unwrap();
        let back = load(folder.path(), &key).unwrap();
        assert!(back.cached);
        assert_eq!((back.cubin, back.seconds), (cubin.clone(), 1.25));
        assert_eq!(back.resources, image(&[]).resources);
        assert_eq!(back.warnings, image(&[]).warnings);

        let path = key.path(folder.path());
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(load(folder.path(), &key).is_none(), "cut to {length} bytes");
        }
        for at in 0..whole.len() {
            let mut edited = whole.clone();
            edited[at] ^= 0x10;
            fs::write(&path, edited).unwrap();
            assert!(load(folder.path(), &key).is_none(), "byte {at} changed");
        }
        store(folder.path(), &key, &image(&cubin)).unwrap();
        assert!(load(folder.path(), &key).is_some());
    }

    #[test]
    fn only_the_last_versions_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let neighbour = CacheKey::new("naive_more-sm_80-nvcc", ["1"]);
        store(folder.path(), &neighbour, &image(b"x")).unwrap();
        let keys: Vec<CacheKey> = (0..MAX_IMAGES + 3)
            .map(|version| CacheKey::new("naive-sm_80-nvcc", [version.to_string().as_str()]))
            .collect();
        for (age, key) in keys.iter().enumerate() {
            store(folder.path(), key, &image(b"x")).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64);
            let file = fs::File::open(key.path(folder.path())).unwrap();
            file.set_modified(at).unwrap();
        }
        store(folder.path(), &keys[0], &image(b"x")).unwrap();
        let left = keys.iter().filter(|key| load(folder.path(), key).is_some());
        assert_eq!(left.count(), MAX_IMAGES);
        assert!(load(folder.path(), &keys[0]).is_some());
        assert!(load(folder.path(), &keys[1]).is_none());
        assert!(load(folder.path(), &neighbour).is_some());
    }
}
