//! The launch contract of every kernel: names, tiles, threads and dynamic shared memory of
//! its entry points, as `kernels/contracts.toml` states them once for all who launch.
//!
//! Grids follow from the problem and stand with the code that launches; what is here
//! is the same for every problem, so that occupancy is known without a GPU.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

const TEXT: &str = include_str!("../../../../kernels/contracts.toml");

/// Storage types that an entry point's name may tell apart.
const DTYPES: [&str; 3] = ["f32", "f16", "bf16"];
/// The most threads that any device gives a block (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
pub const MOST_THREADS: u32 = 1024;
/// The most dynamic shared memory in bytes likewise.
const MOST_SHARED_BYTES: u32 = 232_448;

/// How blocks of an entry point are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

impl BlockShape {
    /// Threads of a block.
    pub fn threads(self) -> u64 {
        self.block.into_iter().map(u64::from).product()
    }
}

/// One entry point of a kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its name in the compiled code.
    pub name: String,
    /// The size it is compiled in.
    pub tile: Tile,
}

/// One size that a kernel is compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// The largest head dimension it takes; `None` where any will do.
    pub head_dim: Option<u32>,
    /// Queries of a tile.
    #[serde(default = "one")]
    pub queries: u32,
    /// Keys of a tile.
    #[serde(default = "one")]
    pub keys: u32,
    /// Columns of a tile, along the head dimension.
    #[serde(default = "one")]
    pub columns: u32,
    threads: u32,
    #[serde(default)]
    shared_bytes: u32,
}

fn one() -> u32 {
    1
}

/// One kernel: the entry points that differ in storage type and tile alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The kernel file, without its ending.
    #[serde(skip)]
    pub file: &'static str,
    entry: String,
    #[serde(default)]
    dtypes: Vec<String>,
    tiles: Vec<Tile>,
}

/// The kernels of each file: one that the data file lacks, or has beside them, is an error
/// where it is read and not a launch that finds nothing.
macro_rules! contracts {
    ($($file:ident: $File:ident { $($kernel:ident),+ })+) => {
        /// The launch contracts, by kernel file.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Contracts {
            $(#[doc = concat!("`", stringify!($file), ".cu`.")] pub $file: $File,)+
        }

        $(
            #[doc = concat!("The kernels of `", stringify!($file), ".cu`.")]
            #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $File {
                $(#[doc = concat!("`[", stringify!($file.$kernel), "]`.")] pub $kernel: Kernel,)+
            }
        )+

        impl Contracts {
            /// Tells each kernel which file it is in.
            fn place(&mut self) {
                $($(self.$file.$kernel.file = stringify!($file);)+)+
            }

            /// Every kernel, with its name in the data file.
            fn kernels(&self) -> Vec<(&'static str, &Kernel)> {
                vec![$($((stringify!($file.$kernel), &self.$file.$kernel),)+)+]
            }
        }
    };
}

contracts! {
    naive: Naive { scores, softmax, out, delta, score_grads, query_grads, key_grads }
    flash_simt: FlashSimt { forward, prepare, backward }
    split_key: SplitKey { prepare, backward }
    flash_mma: FlashMma { forward }
    flash_mma_backward: FlashMmaBackward { prepare, backward, finish }
    flash_wgmma: FlashWgmma { forward }
    flash_wgmma_backward: FlashWgmmaBackward { prepare, backward, finish }
    split_kv: SplitKv { part, part_f32, join }
    reference: Reference { lse, out, delta, dq, dk, dv, difference }
    inputs: Inputs { inputs }
}

/// The launch contracts of the kernels in the binary.
pub fn contracts() -> &'static Contracts {
    static READ: LazyLock<Contracts> = LazyLock::new(|| {
        // A file of the binary: the tests read it before anybody else does.
        parse(TEXT).unwrap_or_else(|problem| panic!("kernels/contracts.toml: {problem}"))
    });
    &READ
}

/// The entry points of a kernel file, by the file's name without its ending.
/// Empty for a name that is no kernel file.
pub fn entries(file: &str) -> Vec<EntryPoint> {
    let kernels = contracts().kernels().into_iter();
    let kernels = kernels.filter(|(_, kernel)| kernel.file == file);
    kernels.flat_map(|(_, kernel)| kernel.entries()).collect()
}

/// How one entry point of a file is launched.
pub fn block(file: &str, name: &str) -> Option<BlockShape> {
    let mut entries = entries(file).into_iter();
    entries
        .find(|entry| entry.name == name)
        .map(|entry| entry.tile.block())
}

fn parse(text: &str) -> Result<Contracts, String> {
    let mut contracts: Contracts = toml::from_str(text).map_err(|error| error.to_string())?;
    contracts.place();
    let mut names = BTreeSet::new();
    for (name, kernel) in contracts.kernels() {
        let wrong = |why: String| format!("[{name}]: {why}");
        kernel.check().map_err(wrong)?;
        for entry in kernel.entries() {
            if !names.insert(entry.name.clone()) {
                return Err(wrong(format!(
                    "`{}` is the entry point of another kernel or tile; let `entry` tell \
                     them apart",
                    entry.name
                )));
            }
        }
    }
    Ok(contracts)
}

impl Tile {
    /// How its blocks are launched.
    pub fn block(&self) -> BlockShape {
        BlockShape {
            block: [self.threads, 1, 1],
            shared_bytes: self.shared_bytes,
        }
    }

    fn check(&self) -> Result<(), String> {
        let axes = [
            self.queries,
            self.keys,
            self.columns,
            self.head_dim.unwrap_or(1),
        ];
        if axes.contains(&0) {
            return Err("a tile of 0 queries, keys, columns or head_dim; leave it out".to_owned());
        }
        if !self.threads.is_multiple_of(32) || !(32..=MOST_THREADS).contains(&self.threads) {
            return Err(format!(
                "threads = {}; a block has whole warps of 32, and at most {MOST_THREADS} threads",
                self.threads
            ));
        }
        if self.shared_bytes > MOST_SHARED_BYTES {
            return Err(format!(
                "shared_bytes = {}; no device gives a block more than {MOST_SHARED_BYTES}",
                self.shared_bytes
            ));
        }
        Ok(())
    }
}

impl Kernel {
    /// The sizes it is compiled in, as the data file has them.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The tile of a kernel that has but one; of several, the first.
    pub fn tile(&self) -> &Tile {
        &self.tiles[0]
    }

    /// The smallest tile for a head dimension, if it takes that at all; of several, the first.
    pub fn tile_for(&self, head_dim: u32) -> Option<&Tile> {
        let held = |tile: &&Tile| tile.head_dim.is_none_or(|most| most >= head_dim);
        let fitting = self.tiles.iter().filter(held);
        fitting.min_by_key(|tile| tile.head_dim)
    }

    /// The entry point for a storage type and a tile of its own.
    pub fn entry(&self, dtype: &str, tile: &Tile) -> String {
        let figures = [
            ("{head_dim}", tile.head_dim.unwrap_or(0)),
            ("{queries}", tile.queries),
            ("{keys}", tile.keys),
        ];
        let name = self.entry.replace("{dtype}", dtype);
        figures.into_iter().fold(name, |name, (place, figure)| {
            name.replace(place, &figure.to_string())
        })
    }

    fn entries(&self) -> Vec<EntryPoint> {
        let dtypes: Vec<&str> = match self.dtypes.is_empty() {
            true => vec![""],
            false => self.dtypes.iter().map(String::as_str).collect(),
        };
        let of = |dtype: &str, tile: &Tile| EntryPoint {
            name: self.entry(dtype, tile),
            tile: *tile,
        };
        let tiles = self.tiles.iter();
        tiles
            .flat_map(|tile| dtypes.iter().map(move |dtype| of(dtype, tile)))
            .collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.tiles.is_empty() {
            return Err("`tiles` is empty; give one row for each compiled size".to_owned());
        }
        if let Some(dtype) = self.dtypes.iter().find(|d| !DTYPES.contains(&d.as_str())) {
            return Err(format!(
                "`{dtype}` is no dtype; there are {}",
                DTYPES.join(", ")
            ));
        }
        if self.entry.contains("{dtype}") == self.dtypes.is_empty() {
            return Err("`dtypes` goes with `{dtype}` in `entry`: give both or neither".to_owned());
        }
        if self.entry.contains("{head_dim}") && self.tiles.iter().any(|t| t.head_dim.is_none()) {
            return Err("`entry` names {head_dim}, and a tile has none".to_owned());
        }
        let sample = self.entry(DTYPES[0], &self.tiles[0]);
        if !sample
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err(format!(
                "entry = \"{}\"; it may name {{dtype}}, {{head_dim}}, {{queries}} and {{keys}}",
                self.entry
            ));
        }
        self.tiles.iter().try_for_each(Tile::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frozen figures of tiles that formulas once gave.
    #[test]
    fn the_file_is_read() {
        let contracts = parse(TEXT).unwrap();
        assert_eq!(contracts.kernels().len(), 31);
        let every = contracts
            .kernels()
            .into_iter()
            .flat_map(|(_, k)| k.entries());
        assert_eq!(every.count(), 102);
        let shared = |file: &str, name: &str| block(file, name).unwrap().shared_bytes;
        assert_eq!(shared("flash_simt", "flash_simt_forward_f32_d128"), 172_032);
        assert_eq!(shared("split_key", "split_key_f32_d128"), 172_544);
        assert_eq!(shared("flash_mma", "flash_mma_forward_bf16_d128"), 65_536);
        let wgmma = block("flash_wgmma", "flash_wgmma_bf16_d64_m192_n128").unwrap();
        assert_eq!((wgmma.threads(), wgmma.shared_bytes), (512, 91_392));
        assert_eq!(block("flash_wgmma", "flash_wgmma_f32_d64_m192_n128"), None);
        assert!(entries("no_such").is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        const SCORES: &str = "keys = 128, threads = 128 }";
        const ENTRY: &str = "\"naive_scores_{dtype}\"";
        for (from, to, words) in [
            ("[naive.out]", "[naive.outs]", "`outs`"),
            (SCORES, "thread = 128 }", "`thread`"),
            (SCORES, "keys = -1, threads = 128 }", "-1"),
            (SCORES, "keys = 0, threads = 128 }", "leave it out"),
            (SCORES, "threads = 100 }", "whole warps"),
            (SCORES, "threads = 2048 }", "at most 1024"),
            (SCORES, "threads = 128, shared_bytes = 300_000 }", "232448"),
            (
                "tiles = [{ keys = 128, threads = 128 }]",
                "tiles = []",
                "is empty",
            ),
            (ENTRY, "\"naive_scores\"", "{dtype}"),
            (ENTRY, "\"naive_scores_{dtype}_d{head_dim}\"", "has none"),
            (ENTRY, "\"naive_softmax_{dtype}\"", "`naive_softmax_f32`"),
            ("\"f32\"", "\"f64\"", "`f64` is no dtype"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
