//! The launch contract of every kernel: names, tiles, threads and dynamic shared memory of
//! its entry points, as `kernels/contracts.toml` states them once for all who launch.
//!
//! Grids follow from the problem and stand with the code that launches; what is here
//! is the same for every problem, so that occupancy is known without a GPU.

use std::sync::LazyLock;

use regatta_worker::attention::Dtype;
use serde::Deserialize;

const TEXT: &str = include_str!("../../../../kernels/contracts.toml");

/// The most threads that any device gives a block (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
pub const MOST_THREADS: u32 = 1024;

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
    dtypes: Vec<Dtype>,
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

            /// Every kernel.
            fn kernels(&self) -> Vec<&Kernel> {
                vec![$($(&self.$file.$kernel,)+)+]
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
        let read = toml::from_str::<Contracts>(TEXT);
        let mut contracts = read.unwrap_or_else(|error| panic!("kernels/contracts.toml: {error}"));
        contracts.place();
        contracts
    });
    &READ
}

/// The entry points of a kernel file, by the file's name without its ending.
/// Empty for a name that is no kernel file.
pub fn entries(file: &str) -> Vec<EntryPoint> {
    let kernels = contracts().kernels().into_iter();
    let kernels = kernels.filter(|kernel| kernel.file == file);
    kernels.flat_map(Kernel::entries).collect()
}

/// How one entry point of a file is launched.
pub fn block(file: &str, name: &str) -> Option<BlockShape> {
    let mut entries = entries(file).into_iter();
    entries
        .find(|entry| entry.name == name)
        .map(|entry| entry.tile.block())
}

impl Tile {
    /// How its blocks are launched.
    pub fn block(&self) -> BlockShape {
        BlockShape {
            block: [self.threads, 1, 1],
            shared_bytes: self.shared_bytes,
        }
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
            false => self.dtypes.iter().map(|dtype| dtype.name()).collect(),
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Frozen figures of tiles that formulas once gave.
    #[test]
    fn every_entry_point_has_a_name_of_its_own_and_blocks_that_a_device_takes() {
        let kernels = contracts().kernels();
        assert_eq!(kernels.len(), 31);
        let mut names = BTreeSet::new();
        for entry in kernels.iter().flat_map(|kernel| kernel.entries()) {
            let BlockShape {
                block,
                shared_bytes,
            } = entry.tile.block();
            let [threads, 1, 1] = block else {
                panic!("{entry:?}");
            };
            assert!(threads % 32 == 0 && (32..=MOST_THREADS).contains(&threads));
            assert!(shared_bytes <= 232_448, "{entry:?}");
            assert!(!entry.name.contains(['{', '}']), "{entry:?}");
            assert!(names.insert(entry.name.clone()), "{entry:?}");
        }
        assert_eq!(names.len(), 102);
        let shared = |file: &str, name: &str| block(file, name).unwrap().shared_bytes;
        assert_eq!(shared("flash_simt", "flash_simt_forward_f32_d128"), 172_032);
        assert_eq!(shared("split_key", "split_key_f32_d128"), 172_544);
        assert_eq!(shared("flash_mma", "flash_mma_forward_bf16_d128"), 65_536);
        let wgmma = block("flash_wgmma", "flash_wgmma_bf16_d64_m192_n128").unwrap();
        assert_eq!((wgmma.threads(), wgmma.shared_bytes), (512, 91_392));
        assert_eq!(block("flash_wgmma", "flash_wgmma_f32_d64_m192_n128"), None);
        assert!(entries("no_such").is_empty());
    }
}
