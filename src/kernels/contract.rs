//! The launch contract of every entry point: threads and dynamic shared memory of a
//! block, as the heads of the files in `kernels/` state them.
//!
//! Grids follow from the problem and stand with the code that launches; what is here
//! is the same for every problem, so that occupancy is known without a GPU.

/// How a block of one entry point is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Threads of a block, all along x.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// One entry point of a kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the compiled code.
    pub name: String,
    /// How it is launched.
    pub block: Block,
}

/// Storage types of the kernels that take all.
const ALL: [&str; 3] = ["f32", "f16", "bf16"];
/// Those of the tensor-core kernels.
const NARROW: [&str; 2] = ["f16", "bf16"];

/// `flash_wgmma`'s tiles: head_dim, queries, keys.
pub const WGMMA_TILES: [[u32; 3]; 3] = [[128, 128, 128], [128, 128, 176], [64, 192, 128]];

/// The entry points of a kernel file, by the file's name without its ending.
/// Empty for a name that is no kernel file.
pub fn entries(file: &str) -> Vec<Entry> {
    match file {
        "naive" => naive(),
        "flash_simt" => flash_simt(),
        "split_key" => split_key(),
        "flash_mma" => flash_mma(),
        "flash_mma_backward" => flash_mma_backward(),
        "flash_wgmma" => flash_wgmma(),
        "flash_wgmma_backward" => flash_wgmma_backward(),
        "split_kv" => split_kv(),
        "reference" => reference(),
        "inputs" => inputs(),
        _ => Vec::new(),
    }
}

/// How one entry point of a file is launched.
pub fn block(file: &str, name: &str) -> Option<Block> {
    let entries = entries(file);
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.block)
}

fn entry(name: String, threads: u32, shared_bytes: u32) -> Entry {
    Entry {
        name,
        block: Block {
            threads,
            shared_bytes,
        },
    }
}

fn naive() -> Vec<Entry> {
    let kernels = [
        ("scores", 128),
        ("softmax", 128),
        ("out", 128),
        ("delta", 32),
        ("score_grads", 128),
        ("query_grads", 128),
        ("key_grads", 128),
    ];
    let named =
        |dtype: &str| kernels.map(|(kernel, n)| entry(format!("naive_{kernel}_{dtype}"), n, 0));
    ALL.iter().flat_map(|dtype| named(dtype)).collect()
}

const SIMT_HEAD_DIMS: [u32; 3] = [32, 64, 128];

/// Four padded tiles of 64 rows, two of scores, two rows of 64.
fn simt_backward(name: &str, d: u32) -> Entry {
    let threads = if d == 32 { 128 } else { 256 };
    let shared = 4 * (256 * (d + 4) + 2 * 64 * 72 + 128);
    entry(format!("{name}_f32_d{d}"), threads, shared)
}

fn flash_simt() -> Vec<Entry> {
    let mut found = vec![entry("flash_simt_prepare".to_owned(), 256, 0)];
    for d in SIMT_HEAD_DIMS {
        let shared = 4 * (256 * (d + 4) + 128 * 72);
        found.push(entry(format!("flash_simt_forward_f32_d{d}"), 256, shared));
        found.push(simt_backward("flash_simt_backward", d));
    }
    found
}

fn split_key() -> Vec<Entry> {
    let mut found = vec![entry("split_key_prepare".to_owned(), 256, 0)];
    found.extend(SIMT_HEAD_DIMS.map(|d| simt_backward("split_key", d)));
    found
}

const NARROW_HEAD_DIMS: [u32; 2] = [64, 128];

/// Every storage type with every head dimension, as names end.
fn narrow() -> impl Iterator<Item = (u32, String)> {
    let endings = |d: u32| NARROW.map(|dtype| (d, format!("{dtype}_d{d}")));
    NARROW_HEAD_DIMS.into_iter().flat_map(endings)
}

fn flash_mma() -> Vec<Entry> {
    narrow()
        .map(|(d, ending)| {
            let shared = (128 * d + 2 * 8192) * 2;
            entry(format!("flash_mma_forward_{ending}"), 128, shared)
        })
        .collect()
}

fn flash_mma_backward() -> Vec<Entry> {
    let kernels = |(d, ending): (u32, String)| {
        let queries = 8192 / d;
        let shared = 512 * d + 8 * queries * d + 272 * queries;
        [("prepare", 0), ("backward", shared), ("finish", 0)]
            .map(|(kernel, shared)| entry(format!("flash_mma_{kernel}_{ending}"), 256, shared))
    };
    narrow().flat_map(kernels).collect()
}

fn flash_wgmma() -> Vec<Entry> {
    let kernels = |[d, m, n]: [u32; 3]| {
        // A warpgroup that loads, and one for each 64 queries.
        let threads = 128 * (1 + m / 64);
        let shared = 1280 + 2 * d * (m + 4 * n);
        NARROW.map(|dtype| {
            entry(
                format!("flash_wgmma_{dtype}_d{d}_m{m}_n{n}"),
                threads,
                shared,
            )
        })
    };
    WGMMA_TILES.into_iter().flat_map(kernels).collect()
}

fn flash_wgmma_backward() -> Vec<Entry> {
    let kernels = |(d, ending): (u32, String)| {
        let shared = 66_624 + 512 * d + 528 * (8192 / d);
        [
            ("prepare", 256, 0),
            ("backward", 384, shared),
            ("finish", 256, 0),
        ]
        .map(|(kernel, n, shared)| entry(format!("flash_wgmma_{kernel}_{ending}"), n, shared))
    };
    narrow().flat_map(kernels).collect()
}

fn split_kv() -> Vec<Entry> {
    let mut found = Vec::new();
    for dtype in ALL {
        for d in NARROW_HEAD_DIMS {
            let shared = match (dtype, d) {
                ("f32", 64) => 106_496,
                ("f32", _) => 208_896,
                _ => 98_304,
            };
            found.push(entry(format!("split_kv_part_{dtype}_d{d}"), 128, shared));
            found.push(entry(format!("split_kv_join_{dtype}_d{d}"), 128, 0));
        }
    }
    found
}

fn reference() -> Vec<Entry> {
    let kernels = [
        ("lse", 66_048),
        ("out", 66_048),
        ("delta", 0),
        ("dq", 66_048),
        ("dk", 66_048),
        ("dv", 66_048),
    ];
    let named = |dtype: &str| {
        let mut found = kernels
            .map(|(kernel, shared)| entry(format!("reference_{kernel}_{dtype}"), 256, shared))
            .to_vec();
        found.push(entry(format!("difference_{dtype}"), 256, 0));
        found
    };
    ALL.iter().flat_map(|dtype| named(dtype)).collect()
}

fn inputs() -> Vec<Entry> {
    let named = |dtype: &&str| entry(format!("inputs_{dtype}"), 256, 0);
    ALL.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures at the heads of the kernel files.
    #[test]
    fn blocks_are_as_the_files_state_them() {
        let shared = |file: &str, name: &str| block(file, name).unwrap().shared_bytes;
        assert_eq!(shared("flash_simt", "flash_simt_forward_f32_d128"), 172_032);
        assert_eq!(shared("flash_simt", "flash_simt_backward_f32_d32"), 74_240);
        assert_eq!(shared("split_key", "split_key_f32_d128"), 172_544);
        assert_eq!(shared("flash_mma", "flash_mma_forward_bf16_d128"), 65_536);
        let backward = "flash_mma_backward";
        assert_eq!(shared(backward, "flash_mma_backward_f16_d64"), 133_120);
        assert_eq!(shared(backward, "flash_mma_backward_bf16_d128"), 148_480);
        let wgmma = |tile| format!("flash_wgmma_bf16_{tile}");
        assert_eq!(shared("flash_wgmma", &wgmma("d128_m128_n176")), 214_272);
        let backward = "flash_wgmma_backward";
        assert_eq!(shared(backward, "flash_wgmma_backward_f16_d64"), 166_976);
        assert_eq!(shared(backward, "flash_wgmma_backward_bf16_d128"), 165_952);
        let block = block("flash_wgmma", &wgmma("d64_m192_n128")).unwrap();
        assert_eq!((block.threads, block.shared_bytes), (512, 91_392));
    }
}
